for view in latency file; do
    trusted $view nullb0
    # The rest is emulation overhead: the timer, the interrupt, and the programs that run first.
    device $view nullb0 '.ops.read.request_stages.device | .min_ns >= 2e6 and .p50_ns <= 2.05e6'
done
device file nullb0 '.ops.read.ios == 300'
# The stages of an I/O are within the time that the load generator measured.
device latency nullb0 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
# The generator tries one read before it begins to count.
device latency nullb0 '.ios - $load.ios | . >= 0 and . <= 1' load "$(cat load.json)"
