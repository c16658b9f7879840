# A real-time task occupies the CPU of a thread that waits for a read: the delay is in reap, and not in
# device or complete. The same reads of a disk with a known service time run with and without the hog.
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=1000000 submit_queues=1 hw_queue_depth=4
reads() {
    record nullb0 block_rq_issue block_rq_complete
    traced "$1" nullb0 -- taskset -c 1 dd if=/dev/nullb0 of=/dev/null bs=4096 count=400 iflag=direct
    recorded "$1.trace"
}
reads alone
# It runs for about 10 ms at a time, and releases the CPU for 1 ms.
taskset -c 1 chrt -f 50 sh -c 'touch hogging; while :; do i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); done; usleep 1000; done' &
hog=$!
wait_for [ -e hogging ]
reads crowded
kill "$hog"
