# A SCSI disk with a known service time: scsi_debug answers each command by a timer after 500 µs. Its driver
# has no event before block_rq_complete, so the rest of the interrupt is in `device`.
. /guest/lib.sh

scsi_disk ndelay=500000 dev_size_mb=64
# The first reads after a boot are slow under emulation.
dd if="/dev/$scsi" of=/dev/null bs=4096 count=200 iflag=direct
record "$scsi" block_rq_issue block_rq_complete
traced latency "$scsi" -- taskset -c 1 dd if="/dev/$scsi" of=/dev/null bs=4096 count=1000 iflag=direct
recorded trace
echo "$scsi" >disk
