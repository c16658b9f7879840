# Every seventh issue event is dropped on purpose. Such an I/O has no start; a stamp left over from an
# earlier I/O of its tag would give it the pause between the bursts as its latency.
. /guest/lib.sh

# Few tags: the first I/O of a tag without an issue reads as started before the trace, and 5.10 goes round
# all tags where later kernels take the same few again.
requests=/sys/block/nvme0n1/queue/nr_requests
usual=$(cat "$requests")
trap 'echo "$usual" >"$requests"' EXIT
echo 4 >"$requests"

cat >load.sh <<'END'
for _ in $(seq 10); do
    taskset -c 1 dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=22 iflag=direct 2>/dev/null
    usleep 400000
done
END
traced latency nvme0n1 --fault-drop-issue 7 -- sh load.sh
