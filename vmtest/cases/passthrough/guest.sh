# Reads by the driver's own command (an ioctl) are I/Os of the drive and no reads of the block layer: a class
# of their own, which the kernel's counters leave out, beside reads that they hold. 5.10 counts them as reads,
# and newer kernels do where they are told to (queue/iostats_passthrough): nothing can be compared there.
. /guest/lib.sh

uname -r >release
cat >load.sh <<'END'
issue passthrough /dev/nvme0n1 150
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=50 iflag=direct
END
traced latency nvme0n1 -- sh load.sh
setting=/sys/block/nvme0n1/queue/iostats_passthrough
if [ -e "$setting" ]; then
    trap 'echo 0 >"$setting"' EXIT
    echo 1 >"$setting"
    traced told nvme0n1 -- sh load.sh
fi
