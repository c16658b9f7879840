# The referee itself: a known number of direct reads moves the drive's counter by exactly that number.
. /guest/lib.sh

counted nvme0n1 ios dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=777 iflag=direct
