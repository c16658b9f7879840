# zram: reads and writes of one or many pages are one I/O each, as the kernel counts them.
. /guest/lib.sh

uname -r >release
modprobe zram num_devices=1
echo 64M >/sys/block/zram0/disksize
cat >load.sh <<'END'
dd if=/dev/urandom of=/dev/zram0 bs=64k count=100 oflag=direct
dd if=/dev/zram0 of=/dev/null bs=4096 count=500 iflag=direct
biopsy load --no-drive-check /dev/zram0 --iodepth 8 --runtime 1s --json -o load.json
END
# The first open scans for partitions, which must be finished.
dd if=/dev/zram0 of=/dev/null bs=4096 count=1 iflag=direct
usleep 500000
traced zram zram0 -- sh load.sh
case $(cat release) in
5.10.*) ;;
*) biopsy diagnose /dev/zram0 --runtime 1s --max-loss 100 --json -o /dev/null >diagnose.json 2>diagnose.err || true ;;
esac
echo 1 >/sys/block/zram0/reset
