for view in waits ring; do
    trusted "$view" nullb0
    device "$view" nullb0 '.ops.read.request_stages.device | .min_ns >= 1e7 and .p50_ns <= 1.1e7'
done
# The emulation's own share of each read is time in which fewer than 16 wait; that of the ends of the run, when
# some readers have not begun or have ended, as well. Between a read's end and the next one's issue a tag lies
# idle.
device waits nullb0 '.ops.read.ios == 960'
device waits nullb0 '.ops.read.request_stages | .queue.sum_ns / .device.sum_ns | . >= 2.4 and . <= 3.3'
if [[ $(cat release) != 5.10.* ]]; then
    device waits nullb0 '.ops.read | .request_parts.queue.alloc.sum_ns > 0.9 * .request_stages.queue.sum_ns'
fi
# io_uring tries without waiting first, and who tries takes a tag from who waits, so that tags lie idle now
# and then: there the generator's own mean is the truth for the sum of wait and service.
device ring nullb0 '.ops.read.request_stages | .queue.sum_ns / .device.sum_ns >= 2.4'
device ring nullb0 '[.ops.read.request_stages[].sum_ns] | add | . <= $all and . >= 0.9 * $all' \
    all "$(jq .latency.sum_ns load.json)"
