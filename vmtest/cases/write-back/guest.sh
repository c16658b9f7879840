# Write-back together with direct writes on NVMe: its rows have `queue`, `device` and `complete` of only the I/Os
# that no operation waits for. The last close of the drive writes the pages back.
. /guest/lib.sh

uname -r >release
traced mixed nvme0n1 -- sh -c 'dd if=/dev/zero of=/dev/nvme0n1 bs=4096 seek=8192 count=2000 conv=notrunc &
    dd if=/dev/zero of=/dev/nvme0n1 bs=4096 count=300 oflag=direct conv=notrunc
    wait'
