[ "$(wc -l <switches)" -gt 5 ] || fail "CPUs were switched only $(wc -l <switches) times"
# Counted or named as lost; whether a loss is too large to trust is not the matter here.
[ "$(cat latency.exit)" -eq 0 ] || exited latency 4
device latency nvme0n1 '.ios + .lost_ios == $ios and .ios > 4500 and kernel == [$ios, $ios]' ios "$(cat latency.ios)"
expect latency.json '.lost.ios == ([.devices[].lost_ios] | add) and .lost.ios * 100 < .devices[0].ios'
device latency nvme0n1 '.negative == 0'
device latency nvme0n1 '.ops.read | (has("stages") | not) or ([.stages[].sum_ns] | add) == .total.sum_ns'
exited diagnose 0
expect diagnose.json '.verdict.id | length > 0'
trusted without nvme0n1
