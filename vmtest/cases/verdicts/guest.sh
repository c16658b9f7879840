# Causes made on purpose, on disks of known service times: what the diagnosis of biopsy's own load names first.
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
# 2 ms for each of up to 64 reads at once: four are few.
slow_disk() { # NAME ATTRIBUTE=VALUE...
    null_disk "$@" completion_nsec=2000000 memory_backed=1 size=32
    # Blocks that were never written are another answer.
    dd if=/dev/urandom of="/dev/$1" bs=1M count=32 oflag=direct
}
slow_disk nullb0 submit_queues=2 hw_queue_depth=64
diagnosed shallow /dev/nullb0 --iodepth 4
# 2 ms for each of four: 32 reads wait for four tags.
slow_disk nullb1 submit_queues=1 hw_queue_depth=4
diagnosed tags /dev/nullb1 --iodepth 32
# A drive that its host holds to 600 reads a second, which the guest does not see.
diagnosed held /dev/nvme0n1 --iodepth 16
# A cgroup that may do 100 reads a second.
echo +io >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/slow
echo "$(cat /sys/block/nullb0/dev) riops=100" >/sys/fs/cgroup/slow/io.max
(
    sh -c 'echo $PPID' >/sys/fs/cgroup/slow/cgroup.procs
    diagnosed throttled /dev/nullb0 --iodepth 8
)
rmdir /sys/fs/cgroup/slow
