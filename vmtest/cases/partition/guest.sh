# I/O of a partition is counted like the kernel counts it: for the partition, and once for its
# disk.
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=200000 submit_queues=2
for drive in nullb0 nvme0n1; do
    issue partition /dev/$drive 2
    wait_for [ -b /dev/${drive}p2 ]
    # The last one is outside of all partitions.
    cat >load.sh <<END
dd if=/dev/${drive}p1 of=/dev/null bs=4096 count=300 iflag=direct &
dd if=/dev/${drive}p2 of=/dev/null bs=4096 count=100 iflag=direct &
dd if=/dev/$drive of=/dev/null bs=4096 count=200 iflag=direct
wait
END
    # Within the first partition: the disk's by its block device, the partition's (5.10) by its
    # sector.
    cat >mixed.sh <<END
dd if=/dev/$drive of=/dev/null bs=4096 count=50 skip=\$((\$(cat /sys/class/block/${drive}p1/start) / 8)) iflag=direct &
dd if=/dev/zero of=/dev/${drive}p1 bs=4096 count=500 conv=fsync &
dd if=/dev/${drive}p2 of=/dev/null bs=4096 count=500 &
dd if=/dev/${drive}p1 of=/dev/null bs=4096 count=800 skip=600
wait
END
    traced $drive $drive -- sh load.sh
    traced first-$drive ${drive}p1 -- sh load.sh
    traced second-$drive ${drive}p2 -- sh load.sh
    sync
    traced mixed-$drive ${drive}p1 -- sh mixed.sh
    sync
    lines lines-$drive ${drive}p2 -- sh load.sh
done
status=0
biopsy latency -d nullb0 -d nullb0p1 --for 1s 2>both.err || status=$?
echo "$status" >both.exit
biopsy interrupts -d nvme0n1p1 --for 100ms --json -o interrupts.json 2>interrupts.err
# The other cases need a drive without partitions.
blockdev --rereadpt /dev/nvme0n1
