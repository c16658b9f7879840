disk=$(cat disk)
trusted latency "$disk"
device latency "$disk" '.ops.read.ios == 1000 and .retries == 0 and .requeues == 0'
# 577 µs, measured on an idle host with other tools; the tolerance of the timers of null_blk, twice.
device latency "$disk" '.ops.read.request_stages.device | .min_ns >= 5e5 and .p50_ns <= 6.2e5'
expect latency.json '[.missing[] | select(.stage == "complete") | .included_in] == ["device"]'
