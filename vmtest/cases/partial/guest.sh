# Requests that complete in parts: seven neighbours in one, of which the disk sometimes brings three and a half. The
# operations of the first three end with the first part, those of the others with the rest, which is a command of
# its own.
. /guest/lib.sh

uname -r >release
scsi_disk ndelay=500000 dev_size_mb=64 statistics=1
echo "$scsi" >disk
driver=/sys/bus/pseudo/drivers/scsi_debug
for view in latency detail; do
    option=
    [ $view = latency ] || option=--detail
    # Short transfers, of every third command.
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
