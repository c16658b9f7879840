# Sixteen readers share four tags of a disk with 10 ms per read. While all of them read, a reader waits for a tag
# three times as long as for the disk (Little's law: 16 in the system, 4 of them served). Compared by the mean, since
# the kernel wakes waiting tasks in batches.
# append: time=virtual
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=10000000 submit_queues=1 hw_queue_depth=64
echo mq-deadline >/sys/block/nullb0/queue/scheduler
echo 4 >/sys/block/nullb0/queue/nr_requests
# One I/O per read: no merges in the scheduler.
echo 2 >/sys/block/nullb0/queue/nomerges
cat >waits.sh <<'END'
for _ in $(seq 16); do
    time -f %e dd if=/dev/nullb0 of=/dev/null bs=4096 count=60 iflag=direct 2>>waits.dd &
done
wait
END
traced waits nullb0 --detail -- sh waits.sh
traced ring nullb0 -- biopsy load --no-drive-check /dev/nullb0 --iodepth 1 --numjobs 16 --runtime 2s --json -o load.json
