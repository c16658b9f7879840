for view in waits ring; do
    trusted "$view" nullb0
    device "$view" nullb0 '.ops.read.request_stages.device | .min_ns >= 1e7 and .p50_ns <= 1.1e7'
done
device waits nullb0 '.ops.read.ios == 960'
# Who has just been served may take the tag again before those who wait are awake, so that readers end one after the
# other: 12, 8, 4 and none wait for the four of them that are served, 1.5 times as long as they are served, at least.
device waits nullb0 '.ops.read.request_stages | .queue.sum_ns / .device.sum_ns | . >= 1.5 and . <= 3.3'
# What each reader says itself is the truth for the sum of wait and service.
took=$(awk '/^[0-9]+[.][0-9]+$/ { ns += $1 * 1e9; n++ } END { if (n != 16) exit 1; printf "%.0f", ns }' waits.dd) ||
    fail "the readers do not say how long they took: $(cat waits.dd)"
device waits nullb0 '[.ops.read.request_stages[].sum_ns] | add | . <= $took and . >= 0.97 * $took' took "$took"
if [[ $(cat release) != 5.10.* ]]; then
    device waits nullb0 '.ops.read | .request_parts.queue.alloc.sum_ns > 0.9 * .request_stages.queue.sum_ns'
fi
# io_uring tries without waiting first, and who tries takes a tag from who waits, so that tags lie idle now
# and then: there the generator's own mean is the truth for the sum of wait and service.
device ring nullb0 '.ops.read.request_stages | .queue.sum_ns / .device.sum_ns >= 2.4'
device ring nullb0 '[.ops.read.request_stages[].sum_ns] | add | . <= $all and . >= 0.9 * $all' \
    all "$(jq .latency.sum_ns load.json)"
