# If the kernel does not count (iostats off), the I/Os equal the generator's, and there is no check by the
# kernel's count.
. /guest/lib.sh

iostats=/sys/block/nvme0n1/queue/iostats
trap 'echo 1 >"$iostats"' EXIT
echo 0 >"$iostats"
traced latency nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 2s --json -o load.json
