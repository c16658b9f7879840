# A write and a flush in turn, on a drive with a cache of its own: the writes are exact, the drive's flush
# commands stand apart, and so do those who wait for them, which the kernel counts as writes without data.
# Writes that must be on the medium (O_DSYNC) are commands of their own kind (FUA); a block device is flushed
# behind each of them all the same. An fsync is an operation although it has nothing of its own to write. A
# disk that knows no FUA is flushed behind the write, before the kernel calls it written.
. /guest/lib.sh

uname -r >release
cat /sys/block/nvme0n1/queue/write_cache >cache
traced fsync nvme0n1 -- issue write-fsync /dev/nvme0n1 200
traced dsync nvme0n1 -- issue write-dsync /dev/nvme0n1 100
traced alone nvme0n1 --detail -- sh -c 'issue fsync /dev/nvme0n1 100 >alone.ns'
modprobe loop
truncate -s 64M /tmp/backing
losetup /dev/loop0 /tmp/backing
traced behind loop0 -- issue write-dsync /dev/loop0 50
losetup -d /dev/loop0
rm /tmp/backing
