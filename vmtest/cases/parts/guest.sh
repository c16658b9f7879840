# `latency --detail` on NVMe: the parts of queue and of complete fill their stages to the nanosecond; an
# engine of its own that waits has wake-ups; with a scheduler there is a part for it.
. /guest/lib.sh

uname -r >release
scheduler=/sys/block/nvme0n1/queue/scheduler
merges=/sys/block/nvme0n1/queue/nomerges
trap 'echo none >"$scheduler"; echo 0 >"$merges"' EXIT
# A request of several bios waits from the first of them on.
echo 2 >"$merges"
traced ring nvme0n1 --detail -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --runtime 1s --json -o load.json
echo mq-deadline >"$scheduler"
traced waits nvme0n1 --detail -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
