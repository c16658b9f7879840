[ "$(wc -l <switches)" -gt 5 ] || fail "CPUs were switched only $(wc -l <switches) times"
# Every I/O is counted or reported as lost. Status 4 is accepted: whether the loss is too large to trust is not
# tested here.
[ "$(cat latency.exit)" -eq 0 ] || exited latency 4
device latency nvme0n1 '.ios + .lost_ios == $ios and .ios > 4500 and kernel == [$ios, $ios]' ios "$(cat latency.ios)"
# 7.x misses events while a CPU is taken offline (it preempts programs, see `preempted`) and counts them. Other
# kernels miss none.
expect latency.json '.lost.ios == ([.devices[].lost_ios] | add) and .lost.ios <= .lost.probes.latency.missed'
device latency nvme0n1 '.negative == 0'
device latency nvme0n1 '.ops.read | (has("stages") | not) or ([.stages[].sum_ns] | add) == .total.sum_ns'
[ "$(cat diagnose.exit)" -eq 0 ] || exited diagnose 4
expect diagnose.json '.verdict.id | length > 0'
[ "$(cat without.exit)" -eq 0 ] || exited without 4
device without nvme0n1 '.ios + .lost_ios == $ios and .ios > 0 and kernel == [$ios, $ios]' ios "$(cat without.ios)"
