# Known causes, on disks with known service times: the first finding when biopsy drives the load.
# timeout: 400
# append: iops=600
. /guest/lib.sh

uname -r >release
trap no_null_disks EXIT
diagnosed() { # FILE TARGET OPTION...
    file=$1
    shift
    biopsy diagnose "$@" --runtime 2s --max-loss 100 --json -o /dev/null >"$file.json" 2>"$file.err" || true
}
# 2 ms per read, and up to 64 reads at once: a depth of four is too low.
slow_disk() { # NAME ATTRIBUTE=VALUE...
    null_disk "$@" completion_nsec=2000000 memory_backed=1 size=32
    # Blocks that were never written give another finding.
    dd if=/dev/urandom of="/dev/$1" bs=1M count=32 oflag=direct
}
slow_disk nullb0 submit_queues=2 hw_queue_depth=64
diagnosed shallow /dev/nullb0 --iodepth 4
# 2 ms for each of four reads: 32 reads wait for four tags.
slow_disk nullb1 submit_queues=1 hw_queue_depth=4
diagnosed tags /dev/nullb1 --iodepth 32
# The host limits the drive to 600 reads per second, which the guest cannot see.
diagnosed held /dev/nvme0n1 --iodepth 16
# A cgroup with a limit of 100 reads per second.
echo +io >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/slow
echo "$(cat /sys/block/nullb0/dev) riops=100" >/sys/fs/cgroup/slow/io.max
(
    sh -c 'echo $PPID' >/sys/fs/cgroup/slow/cgroup.procs
    diagnosed throttled /dev/nullb0 --iodepth 8
)
rmdir /sys/fs/cgroup/slow
