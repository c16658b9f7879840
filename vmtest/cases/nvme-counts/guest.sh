# NVMe has the stages queue, device and complete. Every I/O that the kernel counted has them.
. /guest/lib.sh

[ ! -e /sys/kernel/btf/nvme_core ] || echo yes >module-btf
traced latency nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 3s --json -o load.json
biopsy devices -d nvme0n1 --json >devices.json
