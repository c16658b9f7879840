# Every seventh issue event is dropped on purpose. Such an I/O has no start; a stamp left over from an
# earlier I/O of its tag would give it the pause between the bursts as its latency.
# append: time=virtual
. /guest/lib.sh

# Few tags: the first I/O of a tag without an issue reads as started before the trace, and 5.10 goes round
# all tags where later kernels take the same few again.
null_disk nullb0 completion_nsec=1000000 submit_queues=1 hw_queue_depth=4
cat >load.sh <<'END'
for _ in $(seq 10); do
    taskset -c 1 dd if=/dev/nullb0 of=/dev/null bs=4096 count=22 iflag=direct 2>/dev/null
    usleep 400000
done
END
traced latency nullb0 --fault-drop-issue 7 -- sh load.sh
