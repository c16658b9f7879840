# A queue that io_uring polls: its completions come without an interrupt, in batches, and are counted for the queue.
. /guest/lib.sh

uname -r >release
nvme_driver poll_queues=1
trap 'nvme_driver' EXIT
before=$(kernel_ios nvme0n1)
status=0
biopsy interrupts -d nvme0n1 --json -o polled.json -- \
    biopsy load --no-drive-check /dev/nvme0n1 --hipri --iodepth 8 --runtime 2s --json -o load.json 2>polled.err || status=$?
echo "$status" >polled.exit
echo $(($(kernel_ios nvme0n1) - before)) >polled.ios
