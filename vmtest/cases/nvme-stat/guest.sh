# Checks the referee itself: a known number of direct reads increases the drive's counter by that
# number.
. /guest/lib.sh

counted nvme0n1 ios dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=777 iflag=direct
