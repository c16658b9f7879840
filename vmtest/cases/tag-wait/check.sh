for view in waits ring; do
    trusted "$view" nullb0
    device "$view" nullb0 '.ops.read.request_stages.device | .min_ns >= 1e7 and .p50_ns <= 1.1e7'
done
# The emulation's own share of each read, up to 1 ms here, is time in which fewer than 16 wait; that of the
# ends of the run, when some readers have not begun or have ended, as well.
mean='.ops.read.request_stages.queue | .sum_ns / .count'
device waits nullb0 "$mean | . >= 24e6 and . <= 33e6"
device waits nullb0 '.ops.read.ios == 960'
# io_uring tries without waiting first, and who tries takes a tag from who waits, so that tags lie idle now
# and then: there the generator's own mean is the truth for the sum of wait and service.
device ring nullb0 "$mean >= 24e6"
device ring nullb0 '[.ops.read.request_stages[].sum_ns] | add | . <= $all and . >= 0.9 * $all' \
    all "$(jq .latency.sum_ns load.json)"
