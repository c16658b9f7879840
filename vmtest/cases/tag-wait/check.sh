for view in waits ring; do
    trusted "$view" nullb0
    device "$view" nullb0 '.ops.read.request_stages.device | .min_ns >= 1e7 and .p50_ns <= 1.1e7'
done
device waits nullb0 '.ops.read.ios == 960'
# A reader that was just served may take the tag again before the waiting ones are awake, so readers end one after
# the other: 12, 8, 4 and then none wait while four are served. On average they wait at least 1.5 times as long as
# they are served.
device waits nullb0 '.ops.read.request_stages | .queue.sum_ns / .device.sum_ns | . >= 1.5 and . <= 3.3'
# The sum of wait and service is compared with each reader's own measurement.
took=$(awk '/^[0-9]+[.][0-9]+$/ { ns += $1 * 1e9; n++ } END { if (n != 16) exit 1; printf "%.0f", ns }' waits.dd) ||
    fail "the readers do not say how long they took: $(cat waits.dd)"
device waits nullb0 '[.ops.read.request_stages[].sum_ns] | add | . <= $took and . >= 0.97 * $took' took "$took"
if [[ $(cat release) != 5.10.* ]]; then
    device waits nullb0 '.ops.read | .request_parts.queue.alloc.sum_ns > 0.9 * .request_stages.queue.sum_ns'
fi
# io_uring first tries without waiting, and takes a tag from a waiting thread, so that tags are sometimes idle. The
# sum of wait and service is compared with the generator's mean.
device ring nullb0 '.ops.read.request_stages | .queue.sum_ns / .device.sum_ns >= 2.4'
device ring nullb0 '[.ops.read.request_stages[].sum_ns] | add | . <= $all and . >= 0.9 * $all' \
    all "$(jq .latency.sum_ns load.json)"
