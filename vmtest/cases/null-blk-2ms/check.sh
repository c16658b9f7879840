for view in latency file; do
    trusted $view nullb0
    # The rest is the emulation's: what the timer, the interrupt and the program before ours execute.
    device $view nullb0 '.ops.read.request_stages.device | .min_ns >= 2e6 and .p50_ns <= 2.05e6'
done
device file nullb0 '.ops.read.ios == 300'
# The parts of an I/O's life lie inside what the load generator waited for it.
device latency nullb0 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
# The generator tries one read before it begins to count.
device latency nullb0 '.ios - $load.ios | . >= 0 and . <= 1' load "$(cat load.json)"
