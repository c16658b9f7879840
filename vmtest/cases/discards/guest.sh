# Discards and writes of zeroes are separate classes. The kernel counts the latter as writes.
. /guest/lib.sh

uname -r >release
traced discards nvme0n1 -- issue discard /dev/nvme0n1 100
traced zeroes nvme0n1 -- issue zero /dev/nvme0n1 50
