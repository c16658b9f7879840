# Lock waits on a machine with four CPUs: by the kernel's events, together with probes on the slow path of spinlocks,
# which also see the first waiter; and by the probes alone, as on a kernel without the events.
# append: bare=Y
# timeout: 500
. /guest/lib.sh

uname -r >release
mkdir -p /tmp/tracing
mount -t tracefs none /tmp/tracing
event=/tmp/tracing/events/lock/contention_begin
hist=/dev/null
if [ -e $event ]; then
    echo hist:keys=common_type >$event/trigger
    hist=$event/hist
fi
# Readers of one device through the page cache, and short-lived processes, which share lists in the kernel.
fight='for part in 1 2 3 4; do
    timeout 2 sh -c "while :; do dd if=/dev/nvme0n1 of=/dev/null bs=64k count=512 2>/dev/null; done" &
    timeout 2 sh -c "while :; do /bin/busybox true; done" &
done; wait'
# `issue held` holds a mutex for 100 ms at a time while another thread waits for it.
null_disk nullb0 completion_nsec=100000000
cat $hist >before
status=0
biopsy locks --max-loss 100 --json -o locks.json -- \
    sh -c "cat $hist >from; $fight; cat $hist >to; issue held /dev/nullb0 12" 2>locks.err || status=$?
echo "$status" >locks.exit
cat $hist >after
no_null_disks
# As on a kernel without the events.
biopsy locks --max-loss 100 --fault-no-events --json -o alone.json -- sh -c "$fight" 2>alone.err
status=0
biopsy flame --lock-wait --folded -o waits.folded --max-loss 100 --json -- sh -c "$fight" >waits.json 2>waits.err ||
    status=$?
echo "$status" >waits.exit
biopsy check --json >check.json
[ ! -e $event ] || echo '!hist:keys=common_type' >$event/trigger
umount /tmp/tracing
rmdir /tmp/tracing
