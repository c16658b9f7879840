trusted latency nullb0
# Measured by hand with other tools: p50 between 2,046 and 2,105 µs under emulation.
device latency nullb0 '.ops.read.request_stages.device | .min_ns >= 2e6 and .p50_ns >= 1.8e6 and .p50_ns <= 2.2e6'
# The parts of an I/O's life lie inside what the load generator waited for it.
device latency nullb0 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
# One read more than the load's: the generator tries a direct read when it opens its target.
device latency nullb0 '.ios == $load.latency.count + 1' load "$(cat load.json)"
