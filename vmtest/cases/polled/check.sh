exited refused 3
[ "$(wc -l <refused.err)" -eq 1 ] || fail "not one sentence: $(cat refused.err)"
grep -q 'cannot be polled.*EOPNOTSUPP.*poll_queues' refused.err || fail "$(cat refused.err)"
trusted latency nvme0n1
# The generator first checks with two reads whether the drive can be read, by an interrupt, and whether it can
# be polled.
device latency nvme0n1 '.ios + .merges == $ios + 2' ios "$(jq .ios load.json)"
[ "$(cat interrupts)" -le 1 ] || fail "$(cat interrupts) interrupts"
read -r completions interrupted <contexts
[ "$completions" -gt 100 ] || fail "only $completions completions in the trace"
[ "$interrupted" -le 1 ] || fail "$interrupted of $completions completions in an interrupt"
expect load.json '.hipri and .errors == 0 and .ios > 100'
device latency nvme0n1 '[.queues[] | select(.type == "poll") | .ios] == [$ios - 1]' ios "$(cat latency.ios)"
trusted kinds nvme0n1
device kinds nvme0n1 '[.queues[] | select(.type == "read") | .ios] | add == 100'
device kinds nvme0n1 '[.queues[] | select(.type == "default") | .ios] == [50]'
[[ $(cat release) != 5.10.* ]] || exit 0
device latency nvme0n1 '.ops.read | .stages | keys == ["complete","device","queue","reap","submit"]'
joined latency nvme0n1 $(($(jq .ios load.json) + 2))
