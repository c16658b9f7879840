trusted latency nullb0
device latency nullb1 '.ios == $ios and kernel == [$ios, $ios]' ios "$(cat other.ios)"
# Wide upper bounds: four timers and two loads share the emulated CPUs. A mix-up of 1 and 5 ms
# would still be noticed.
device latency nullb0 '.ops.read.request_stages.device | .min_ns >= 1e6 and .p50_ns <= 1.5e6'
device latency nullb1 '.ops.read.request_stages.device | .min_ns >= 5e6 and .p50_ns <= 6e6'
