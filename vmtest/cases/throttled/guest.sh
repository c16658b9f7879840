# A cgroup may do 20 reads a second: who reads one by one does two at once, and waits in the throttle for the
# rest of a tenth of a second. That is part of `queue` and not of `submit`. By cgroup v2 (io.max), and by v1 (blkio.throttle.read_iops_device).
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=500000 submit_queues=1
number=$(cat /sys/block/nullb0/dev)
reads() { # FILE CGROUP
    cat >load.sh <<END
echo \$\$ >$2/cgroup.procs
exec dd if=/dev/nullb0 of=/dev/null bs=4096 count=40 iflag=direct
END
    traced "$1" nullb0 --detail -- sh load.sh
}
echo +io >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/slow
echo "$number riops=20" >/sys/fs/cgroup/slow/io.max
reads v2 /sys/fs/cgroup/slow
rmdir /sys/fs/cgroup/slow
# The controller is in one hierarchy at a time, and leaves the other one when its last group is gone.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /tmp/blkio
mounted() { mount -t cgroup -o blkio blkio /tmp/blkio; }
wait_for mounted
mkdir /tmp/blkio/slow
echo "$number 20" >/tmp/blkio/slow/blkio.throttle.read_iops_device
reads v1 /tmp/blkio/slow
rmdir /tmp/blkio/slow
umount /tmp/blkio
