# Every seventh issue event is dropped on purpose. Such an I/O has no start. A stale stamp of an
# earlier I/O with the same tag would give it the pause between the bursts as latency.
# append: time=virtual
. /guest/lib.sh

# Few tags: the first I/O of a tag whose issue was dropped seems to have started before the trace. 5.10
# uses all tags in turn, later kernels reuse the same few.
null_disk nullb0 completion_nsec=1000000 submit_queues=1 hw_queue_depth=4
cat >load.sh <<'END'
for _ in $(seq 10); do
    taskset -c 1 dd if=/dev/nullb0 of=/dev/null bs=4096 count=22 iflag=direct 2>/dev/null
    usleep 400000
done
END
traced latency nullb0 --fault-drop-issue 7 -- sh load.sh
