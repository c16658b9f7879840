# dm-linear over NVMe: bios are counted like the kernel counts them, for reads, writes, writes with a
# preflush, and split ones. The drive below has its own rows.
. /guest/lib.sh

uname -r >release
upper=$(mapped linear linear nvme0n1)
echo "$upper" >name
limit=/sys/block/nvme0n1/queue/max_sectors_kb
usual=$(cat "$limit")
trap 'echo "$usual" >"$limit"' EXIT

traced reads "$upper" -- dd if="/dev/$upper" of=/dev/null bs=4096 count=300 iflag=direct
case $(cat release) in 5.10.*) exit 0 ;; esac
traced ring "$upper" -- biopsy load --no-drive-check "/dev/$upper" --iodepth 8 --runtime 1s --json -o load.json
biopsy diagnose "/dev/$upper" --runtime 1s --max-loss 100 --json -o /dev/null >diagnose.json 2>diagnose.err || true
# Two targets, each half of the disk: dm splits bios at the border.
half=$(($(cat /sys/block/nvme0n1/size) / 2))
printf '0 %d linear /dev/nvme0n1 0\n%d %d linear /dev/nvme0n1 %d\n' $half $half $half $half |
    dmsetup create --noudevsync halves
halves=dm-1
dd if=/dev/$halves of=/dev/null bs=512 count=1 iflag=direct
before=$((half * 512 / 4096 - 5))
cat >reads.sh <<END
dd if=/dev/$halves of=/dev/null bs=128k skip=$((half * 512 / 131072 - 1)) count=1 iflag=direct
dd if=/dev/$halves of=/dev/null bs=40k skip=$((before / 10)) count=2 iflag=direct
END
traced borders $halves -- sh reads.sh
dmsetup remove --noudevsync halves

mounted_ext4 "$upper" /tmp/mounted
cat >load.sh <<'END'
for n in 1 2 3 4 5; do
    dd if=/dev/zero of=/tmp/mounted/$n bs=64k count=8 conv=fsync
done
END
sync
traced journal "$upper" -- sh load.sh
umount /tmp/mounted
