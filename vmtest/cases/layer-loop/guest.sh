# A loop device over a file: it and the disk of the file system have requests, and the loop driver's
# worker is between them.
. /guest/lib.sh

null_disk nullb0 completion_nsec=2000000 memory_backed=1
modprobe loop
mounted_ext4 nullb0 /tmp/mounted
dd if=/dev/urandom of=/tmp/mounted/file bs=1M count=16 conv=fsync
# Read-ahead would serve several reads at once. A file inherits the setting when it is opened.
echo 0 >/sys/block/nullb0/queue/read_ahead_kb
losetup /dev/loop0 /tmp/mounted/file
sync
sleep 1
echo 3 >/proc/sys/vm/drop_caches
# The file's extents are looked up once: for the end of the file, and right after the part that will be
# read.
dd if=/dev/loop0 of=/dev/null bs=4096 skip=1000 count=1 iflag=direct
dd if=/dev/loop0 of=/dev/null bs=4096 skip=101 count=1 iflag=direct
traced latency loop0 -- dd if=/dev/loop0 of=/dev/null bs=4096 count=100 iflag=direct
# The worker's waits on behalf of the reader: their stacks are below the disk that it serves.
status=0
biopsy flame --off-cpu --all-waits --folded -o worker.folded --max-cost 100 -- \
    dd if=/dev/loop0 of=/dev/null bs=4096 skip=200 count=100 iflag=direct >worker.txt 2>worker.err || status=$?
echo "$status" >worker.exit
losetup -d /dev/loop0
umount /tmp/mounted
