# RAID over two disks with a known service time: a stripe, whose reads are one I/O each or are split,
# and a mirror, whose writes are two.
# append: time=virtual
. /guest/lib.sh

export MDADM_NO_UDEV=1
uname -r >release
null_disk nullb0 completion_nsec=2000000
null_disk nullb1 completion_nsec=2000000
array md0 0 /dev/nullb0 /dev/nullb1
# The first open scans for partitions, which must be finished.
dd if=/dev/md0 of=/dev/null bs=4096 count=1 iflag=direct
traced reads md0 -- biopsy load --no-drive-check /dev/md0 --iodepth 4 --runtime 2s --json -o load.json
case $(cat release) in 5.10.*) exit 0 ;; esac
traced split md0 -- dd if=/dev/md0 of=/dev/null bs=1M count=10 iflag=direct
traced flush md0 -- dd if=/dev/zero of=/dev/md0 bs=4096 count=50 oflag=direct conv=fsync
mdadm --stop /dev/md0
array md1 1 /dev/nullb0 /dev/nullb1
dd if=/dev/md1 of=/dev/null bs=4096 count=1 iflag=direct
traced mirror md1 -- dd if=/dev/zero of=/dev/md1 bs=4096 count=50 oflag=direct
