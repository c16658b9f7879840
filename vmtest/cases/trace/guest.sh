# A line for each I/O on NVMe: as many as the kernel counted, with stages that add up; also the slowest I/Os,
# and a full ring buffer.
. /guest/lib.sh

uname -r >release
lines ring nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 1s --json -o load.json
lines waits nvme0n1 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
lines top nvme0n1 --top 5 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
lines every nvme0n1 --every 10 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
lines full nvme0n1 --fault-ring-bytes 4096 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 32 --runtime 1s --json -o /dev/null
