disk=$(cat disk)
trusted latency "$disk"
device latency "$disk" '.ops.read.ios == 1000 and .retries == 0 and .requeues == 0'
# The kernel's own trace of the same reads is the referee. How late a timer is depends on the host: the trace
# read 571 to 630 µs. One bucket of the histogram is 33 µs there.
kernel=$(referee trace 1000)
device latency "$disk" '.ops.read.request_stages.device | .min_ns >= 5e5 and (.p50_ns - $kernel | fabs) <= 3.3e4' \
    kernel "$kernel"
expect latency.json '[.missing[] | select(.stage == "complete") | .included_in] == ["device"]'
