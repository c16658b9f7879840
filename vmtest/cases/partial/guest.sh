# Requests that complete in parts: seven adjacent reads in one request, of which the disk sometimes transfers three
# and a half. The operations of the first three complete with the first part. The others complete with the rest,
# which is a separate command.
. /guest/lib.sh

uname -r >release
scsi_disk ndelay=500000 dev_size_mb=64 statistics=1
echo "$scsi" >disk
driver=/sys/bus/pseudo/drivers/scsi_debug
for view in latency detail; do
    option=
    [ $view = latency ] || option=--detail
    # Short transfers, for every third command.
    echo 0x100 >$driver/opts
    echo 3 >$driver/every_nth
    record "$scsi" block_rq_complete block_rq_requeue
    # shellcheck disable=SC2086 # none or one
    traced $view "$scsi" $option -- issue neighbours "/dev/$scsi" 60
    recorded $view.trace
    echo 0 >$driver/every_nth
    echo 0 >$driver/opts
done
echo 0x100 >$driver/opts
echo 3 >$driver/every_nth
lines lines "$scsi" -- issue neighbours "/dev/$scsi" 60
echo 0 >$driver/every_nth
echo 0 >$driver/opts
