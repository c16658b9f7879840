# A cgroup is limited to 20 reads per second. A reader with one read at a time does two at once, and is then
# throttled for the rest of a tenth of a second. This time is in `queue` and not in `submit`, and the read
# belongs to its submitter, not to the kernel's worker that submits it later. By cgroup v2 (io.max), and by v1
# (blkio.throttle.read_iops_device).
# timeout: 400
# append: time=virtual
. /guest/lib.sh

uname -r >release
trap no_layers EXIT
null_disk nullb0 completion_nsec=500000 submit_queues=1
number=$(cat /sys/block/nullb0/dev)
# The process that is selected by its id writes it to a file, and waits until it may begin.
reads() { # FILE CGROUP
    cat >load.sh <<END
echo \$\$ >$2/cgroup.procs
exec dd if=/dev/nullb0 of=/dev/null bs=4096 count=40 iflag=direct
END
    traced "$1" nullb0 --detail -- sh load.sh
    case $(cat release) in 5.10.*) return ;; esac
    traced "$1-comm" nullb0 --comm dd -- sh load.sh
    traced "$1-groups" nullb0 --by process -- sh load.sh
    lines "$1-slow" nullb0 --slower-than 10ms -- sh load.sh
    rm -f go over
    (
        sh -c 'echo $$ >pid; until [ -e go ]; do usleep 10000; done; . ./load.sh'
        touch over
    ) &
    wait_for [ -s pid ]
    traced "$1-pid" nullb0 -p "$(cat pid)" -- sh -c 'touch go; until [ -e over ]; do usleep 10000; done'
    wait
    rm -f pid
}
# Reads of four bios, which are not on the stack of the waiting task; and io_uring reads: a nowait request is
# throttled, then must be split, and is submitted again by a worker.
large() { # FILE CGROUP
    case $(cat release) in 5.10.*) return ;; esac
    cat >load.sh <<END
echo \$\$ >$2/cgroup.procs
exec dd if=/dev/nullb0 of=/dev/null bs=4M count=10 iflag=direct
END
    traced "$1" nullb0 --detail -- sh load.sh
    cat >load.sh <<END
echo \$\$ >$2/cgroup.procs
exec biopsy load --no-drive-check /dev/nullb0 --bs 1m --iodepth 4 --runtime 2s --json -o $1-load.json
END
    traced "$1-ring" nullb0 --detail -- sh load.sh
}
# libaio: two of four wait.
iocbs() { # FILE CGROUP
    case $(cat release) in 5.10.*) return ;; esac
    cat >load.sh <<END
echo \$\$ >$2/cgroup.procs
exec biopsy load --no-drive-check /dev/nullb0 --ioengine libaio --iodepth 4 --runtime 2s --json -o $1-load.json
END
    traced "$1" nullb0 --detail -- sh load.sh
    # The next run writes a file of the same name.
    mv "$1-load.json" "$1-traced.json"
    lines "$1-slow" nullb0 --slower-than 10ms -- sh load.sh
}
echo +io >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/slow
echo "$number riops=20" >/sys/fs/cgroup/slow/io.max
reads v2 /sys/fs/cgroup/slow
iocbs aio /sys/fs/cgroup/slow
large large /sys/fs/cgroup/slow
# Only the upper device has a limit: nothing is throttled below it.
case $(cat release) in
5.10.*) ;;
*)
    upper=$(mapped linear linear nullb0)
    echo "$upper" >name
    echo "$number riops=max" >/sys/fs/cgroup/slow/io.max
    echo "$(cat "/sys/block/$upper/dev") riops=20" >/sys/fs/cgroup/slow/io.max
    cat >load.sh <<END
echo \$\$ >/sys/fs/cgroup/slow/cgroup.procs
exec dd if=/dev/$upper of=/dev/null bs=4096 count=40 iflag=direct
END
    traced layer "$upper" --detail -- sh load.sh
    no_layers
    ;;
esac
rmdir /sys/fs/cgroup/slow
# The controller is in one hierarchy at a time, and leaves the other when its last group is removed.
echo -io >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /tmp/blkio
mounted() { mount -t cgroup -o blkio blkio /tmp/blkio; }
wait_for mounted
mkdir /tmp/blkio/slow
echo "$number 20" >/tmp/blkio/slow/blkio.throttle.read_iops_device
reads v1 /tmp/blkio/slow
rmdir /tmp/blkio/slow
umount /tmp/blkio
