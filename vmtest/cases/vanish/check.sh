exited latency 4
[ "$(wc -l <latency.err)" -eq 1 ] || fail "not one sentence: $(cat latency.err)"
grep -q nvme0n1 latency.err || fail "the sentence does not name the drive: $(cat latency.err)"
device latency nvme0n1 '.ios > 0 and .ops.read.request_stages.device.count > 0'
# The load ends as well, with an error sentence and without a panic.
exited load 4
[ "$(wc -l <load.err)" -eq 1 ] || fail "not one sentence: $(cat load.err)"
