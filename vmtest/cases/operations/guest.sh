# Operations on NVMe: as many as the application submitted, with all five stages, which add up to the
# nanosecond; for an io_uring load, for blocking reads, and for reads that the block layer splits.
. /guest/lib.sh

uname -r >release
limit=/sys/block/nvme0n1/queue/max_sectors_kb
usual=$(cat "$limit")
trap 'echo "$usual" >"$limit"' EXIT
traced ring nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 1s --json -o load.json
traced waits nvme0n1 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
# Processes with identical addresses.
echo 0 >/proc/sys/kernel/randomize_va_space
# On 7.x they sometimes preempt each other inside the programs; the losses are counted.
traced many nvme0n1 -- sh -c 'for i in $(seq 16); do issue neighbours /dev/nvme0n1 20 & done; wait'
# Requests that io_uring workers execute; 5.10 does not support such large ring entries.
[ "$(cut -d. -f1,2 release)" = 5.10 ] || {
    traced syncs nvme0n1 -- issue ring-fsync /dev/nvme0n1 100
    traced buffered nvme0n1 -- issue ring-buffered /dev/nvme0n1 20
}
echo 128 >"$limit"
traced split nvme0n1 -- dd if=/dev/nvme0n1 of=/dev/null bs=1M count=20 iflag=direct
