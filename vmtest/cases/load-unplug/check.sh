exited load 4
[ "$(wc -l <load.err)" -eq 1 ] || fail "not one sentence: $(cat load.err)"
grep -q 'device nvme0n1 vanished' load.err || fail "the sentence does not name the drive: $(cat load.err)"
# The I/Os until then are in the result; the failed ones are counted by direction
# and error.
expect load.json '.ios > 100 and .latency.count == .ios and .duration_ns > 1e9 and .duration_ns < 15e9'
expect load.json '.errors > 0 and ([.failures[].count] | add) == .errors'
expect load.json '[.failures[] | .direction] | all(. == "read" or . == "write")'
exited again 0
expect again.json '.ios > 0 and .errors == 0'
