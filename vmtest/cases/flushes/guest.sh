# A write and a flush in turn, on a drive with a cache of its own: the writes are exact, the drive's flush
# commands stand apart, and so do those who wait for them, which the kernel counts as writes without data.
# Writes that must be on the medium (O_DSYNC) are commands of their own kind (FUA); a block device is flushed
# behind each of them all the same.
. /guest/lib.sh

cat /sys/block/nvme0n1/queue/write_cache >cache
traced fsync nvme0n1 -- issue write-fsync /dev/nvme0n1 200
traced dsync nvme0n1 -- issue write-dsync /dev/nvme0n1 100
