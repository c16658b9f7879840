# Operations on NVMe: as many as the application handed over, with all five stages, which add up to the
# nanosecond; for an io_uring load, for reads that wait, and for reads that the block layer splits.
. /guest/lib.sh

uname -r >release
limit=/sys/block/nvme0n1/queue/max_sectors_kb
usual=$(cat "$limit")
trap 'echo "$usual" >"$limit"' EXIT
traced ring nvme0n1 -- biopsy load /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 2s --json -o load.json
traced waits nvme0n1 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
echo 128 >"$limit"
traced split nvme0n1 -- dd if=/dev/nvme0n1 of=/dev/null bs=1M count=20 iflag=direct
