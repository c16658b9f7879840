# A layer with a known time: dm-delay delays each I/O by 100 ms, the disk below takes 2 ms.
# append: time=virtual
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=2000000
modprobe dm_delay
upper=$(mapped delay delay nullb0 100)
echo "$upper" >name
traced latency "$upper" -- dd if="/dev/$upper" of=/dev/null bs=4096 count=20 iflag=direct
traced ring "$upper" -- biopsy load --no-drive-check "/dev/$upper" --iodepth 4 --runtime 2s --json -o load.json
