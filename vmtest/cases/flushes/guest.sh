# Alternating writes and flushes on a drive with a write cache. Writes are counted exactly. The drive's flush
# commands are a separate class, as are the flushes that callers wait for, which the kernel counts as writes
# without data. Writes that must reach the medium (O_DSYNC) have a separate class (FUA); a block device is
# flushed after each of them all the same. An fsync is an operation even without data to write. A disk
# without FUA is flushed after the write, before the kernel completes it.
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
