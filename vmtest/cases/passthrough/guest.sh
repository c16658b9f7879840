# Reads by NVMe passthrough (an ioctl, or an io_uring request on the character device) are I/Os of the drive, and
# no reads of the block layer: a separate class, which the kernel's counters exclude. Ordinary reads run as well,
# which they include. 5.10 counts passthrough as reads, and newer kernels do so if configured
# (queue/iostats_passthrough): the counts cannot be compared there.
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
