# Reads by the driver's own command (an ioctl, or a request of io_uring on the character device) are I/Os of the
# drive and no reads of the block layer: a class of their own, which the kernel's counters leave out, beside reads
# that they hold. 5.10 counts them as reads, and newer kernels do where they are told to
# (queue/iostats_passthrough): nothing can be compared there.
. /guest/lib.sh

uname -r >release
cat >load.sh <<'END'
issue passthrough /dev/nvme0n1 150 >load.ns
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=50 iflag=direct
END
traced latency nvme0n1 -- sh load.sh
mv load.ns latency.ns
case $(cat release) in
5.10.*) exit 0 ;;
esac
traced ring nvme0n1 -- sh -c 'issue ring-passthrough /dev/ng0n1 150 >ring.ns'
traced detail nvme0n1 --detail -- issue ring-passthrough /dev/ng0n1 150
traced by nvme0n1 --by process,op -- sh load.sh
traced comm nvme0n1 --comm issue -- sh load.sh
lines lines nvme0n1 -- issue ring-passthrough /dev/ng0n1 150
setting=/sys/block/nvme0n1/queue/iostats_passthrough
if [ -e "$setting" ]; then
    trap 'echo 0 >"$setting"' EXIT
    echo 1 >"$setting"
    traced told nvme0n1 -- sh load.sh
fi
