exited latency 0
[ "$(cat latency.ios)" -eq 0 ] || fail "the kernel counted $(cat latency.ios)"
expect latency.json '.lost.ios == 0 and .lost.events == 0'
device latency nvme0n1 '.ios + .merges == $ios + 1 and .kernel_ios_min == null and .kernel_ios_max == null' ios "$(jq .ios load.json)"
