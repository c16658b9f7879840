# A load on a partition is counted once, for its disk, beside one on the disk itself.
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=200000 submit_queues=2
issue partition /dev/nullb0 1
wait_for [ -b /dev/nullb0p1 ]
cat >load.sh <<'END'
dd if=/dev/nullb0p1 of=/dev/null bs=4096 count=300 iflag=direct &
dd if=/dev/nullb0 of=/dev/null bs=4096 count=200 iflag=direct
wait
END
traced latency nullb0 -- sh load.sh
traced named nullb0 -d nullb0p1 -- dd if=/dev/nullb0p1 of=/dev/null bs=4096 count=100 iflag=direct
