# A line for each bio of a device without requests: as many as the kernel counts on dm, md and zram, also with
# splits.
. /guest/lib.sh

export MDADM_NO_UDEV=1
uname -r >release
linear=$(mapped linear linear nvme0n1)
lines reads "$linear" -- dd if="/dev/$linear" of=/dev/null bs=4096 count=300 iflag=direct
case $(cat release) in 5.10.*) exit 0 ;; esac
lines ring "$linear" -- biopsy load --no-drive-check "/dev/$linear" --iodepth 8 --runtime 1s --json -o load.json
lines top "$linear" --top 5 -- dd if="/dev/$linear" of=/dev/null bs=4096 count=300 iflag=direct
lines both nvme0n1 -d "$linear" -- dd if="/dev/$linear" of=/dev/null bs=4096 count=100 iflag=direct
# Two targets, each half of the disk: dm splits bios at the border.
half=$(($(cat /sys/block/nvme0n1/size) / 2))
printf '0 %d linear /dev/nvme0n1 0\n%d %d linear /dev/nvme0n1 %d\n' $half $half $half $half |
    dmsetup create --noudevsync halves
halves=$(dmsetup info -c --noheadings -o blkdevname halves)
dd if="/dev/$halves" of=/dev/null bs=512 count=1 iflag=direct
before=$((half * 512 / 4096 - 5))
lines border "$halves" -- dd if="/dev/$halves" of=/dev/null bs=40k skip=$((before / 10)) count=2 iflag=direct
dmsetup remove --noudevsync halves

null_disk nullb0 completion_nsec=2000000
null_disk nullb1 completion_nsec=2000000
array md0 0 /dev/nullb0 /dev/nullb1
dd if=/dev/md0 of=/dev/null bs=4096 count=1 iflag=direct
lines stripe md0 -- biopsy load --no-drive-check /dev/md0 --iodepth 4 --runtime 1s --json -o load.json
lines split md0 -- dd if=/dev/md0 of=/dev/null bs=1M count=10 iflag=direct

modprobe zram num_devices=1
echo 64M >/sys/block/zram0/disksize
cat >load.sh <<'END'
dd if=/dev/urandom of=/dev/zram0 bs=64k count=100 oflag=direct
dd if=/dev/zram0 of=/dev/null bs=4096 count=500 iflag=direct
END
# The first open scans for partitions, which must be finished.
dd if=/dev/zram0 of=/dev/null bs=4096 count=1 iflag=direct
usleep 500000
lines zram zram0 -- sh load.sh
echo 1 >/sys/block/zram0/reset
