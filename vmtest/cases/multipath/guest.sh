# append: nvme_core.multipath=Y
# An NVMe drive behind a multipath head: its bios enter the block layer at the head, its requests run on the
# hidden path, and both are one I/O.
. /guest/lib.sh

modprobe -r nvme
modprobe -r nvme_core
modprobe nvme_core multipath=Y
modprobe nvme
wait_for [ -b /dev/nvme0n1 ]
ls /sys/block >disks
path=$(basename /sys/block/nvme0c*n1)
echo "$path" >path
before=$(kernel_ios "$path")
status=0
biopsy latency -d nvme0n1 --json -o reads.json -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct \
    2>reads.err || status=$?
echo "$status" >reads.exit
echo $(($(kernel_ios "$path") - before)) >reads.ios
