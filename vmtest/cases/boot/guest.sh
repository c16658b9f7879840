# The kernel boots with what every other case needs: BTF, the drive with a queue per CPU, and the
# modules that the cases load.
. /guest/lib.sh

uname -r >release
[ -s /sys/kernel/btf/vmlinux ] || fail "no BTF"
[ -b /dev/nvme0n1 ] || fail "no NVMe drive"
set -- /sys/block/nvme0n1/mq/*
[ $# -eq 4 ] || fail "the drive has $# queues, not 4"
for module in null_blk brd scsi_debug dm-mod dm-delay ext4 loop virtio_blk; do
    modprobe "$module" || fail "module $module does not load"
done
bpftool prog show >/dev/null || fail "bpftool does not run"
