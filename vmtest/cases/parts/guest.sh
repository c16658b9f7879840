# `latency --detail` on NVMe: the parts of queue and of complete add up to their stages, to the
# nanosecond. A blocking engine has wake-ups, and a scheduler has its own part.
. /guest/lib.sh

uname -r >release
scheduler=/sys/block/nvme0n1/queue/scheduler
merges=/sys/block/nvme0n1/queue/nomerges
trap 'echo none >"$scheduler"; echo 0 >"$merges"' EXIT
# A request of several bios would wait from its first bio on.
echo 2 >"$merges"
traced ring nvme0n1 --detail -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --runtime 1s --json -o load.json
echo mq-deadline >"$scheduler"
traced waits nvme0n1 --detail -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
