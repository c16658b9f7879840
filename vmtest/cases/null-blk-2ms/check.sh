trusted latency nullb0
# Measured by hand with other tools: p50 between 2,046 and 2,105 µs under emulation.
device latency nullb0 '.ops.read.request_stages.device | .min_ns >= 2e6 and .p50_ns >= 1.8e6 and .p50_ns <= 2.2e6'
# The parts of an I/O's life lie inside what the load generator waited for it.
device latency nullb0 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
# The generator tries one read before it begins to count.
device latency nullb0 '.ios - $load.ios | . >= 0 and . <= 1' load "$(cat load.json)"
