exited latency 4
# 220 reads on one CPU: every seventh issue is dropped, from any start value of
# that CPU's counter.
expect latency.json '.lost.ios >= 31 and .lost.ios <= 32 and .lost.probes.latency.no_start == .lost.ios'
device latency nullb0 '.ios + $view.lost.ios == $ios and kernel == [$ios, $ios]' ios "$(cat latency.ios)"
device latency nullb0 '.ops.read.request_stages.device | .count > 0 and .max_ns < 3e8'
