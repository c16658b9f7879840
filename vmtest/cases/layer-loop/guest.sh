# A loop device over a file: both it and the disk of the file system have requests, and the loop driver's
# worker stands between them.
. /guest/lib.sh

null_disk nullb0 completion_nsec=2000000 memory_backed=1
modprobe loop
mounted_ext4 nullb0 /tmp/mounted
dd if=/dev/urandom of=/tmp/mounted/file bs=1M count=16 conv=fsync
# Reading ahead would serve several at once; a file takes it over when it is opened.
echo 0 >/sys/block/nullb0/queue/read_ahead_kb
losetup /dev/loop0 /tmp/mounted/file
sync
sleep 1
echo 3 >/proc/sys/vm/drop_caches
# Where the file lies is looked up once: of its far end, and just behind what will be read.
dd if=/dev/loop0 of=/dev/null bs=4096 skip=1000 count=1 iflag=direct
dd if=/dev/loop0 of=/dev/null bs=4096 skip=101 count=1 iflag=direct
traced latency loop0 -- dd if=/dev/loop0 of=/dev/null bs=4096 count=100 iflag=direct
# What the worker waits for in the stead of whoever reads: it stands under the disk that it works for.
status=0
biopsy flame --off-cpu --all-waits --folded -o worker.folded --max-cost 100 -- \
    dd if=/dev/loop0 of=/dev/null bs=4096 skip=200 count=100 iflag=direct >worker.txt 2>worker.err || status=$?
echo "$status" >worker.exit
losetup -d /dev/loop0
umount /tmp/mounted
