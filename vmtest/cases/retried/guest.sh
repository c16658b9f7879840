# Retried commands of a SCSI disk. If the disk answers with an error that allows a retry, or does not answer
# in time, the device had the command: all of its time is `device`, and it counts as a retry. If the host
# adapter is busy, the device did not have it yet: the time is `queue`, and it counts as a requeue.
# append: time=virtual
. /guest/lib.sh

uname -r >release
scsi_disk ndelay=2000000 dev_size_mb=64 statistics=1
echo "$scsi" >disk
driver=/sys/bus/pseudo/drivers/scsi_debug
echo 1 >"/sys/block/$scsi/device/timeout"
reads() { # FILE OPTS NTH COUNT
    record "$scsi" block_rq_requeue
    echo "$2" >$driver/opts
    echo "$3" >$driver/every_nth
    traced "$1" "$scsi" --detail -- dd if="/dev/$scsi" of=/dev/null bs=4096 count="$4" iflag=direct
    echo 0 >$driver/every_nth
    echo 0 >$driver/opts
    recorded "$1.trace"
}
reads plain 0 0 100
reads answered 0x10 20 200
reads late 0x4 20 30
reads busy 0x8000 20 200
