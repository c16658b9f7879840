for view in v2 v1; do
    trusted "$view" nullb0
    device "$view" nullb0 '.ops.read.request_stages.device | .min_ns >= 5e5 and .sum_ns < 0.3e9'
    [[ $(cat release) != 5.10.* ]] || continue
    # 40 reads at 20 a second take 2 s, less the disk's own time and a burst at the beginning.
    joined "$view" nullb0 40
    device "$view" nullb0 '.ops.read.stages | .queue.sum_ns > 1.5e9 and .submit.sum_ns < 0.2e9'
    device "$view" nullb0 '.ops.read.parts.queue.throttle.sum_ns > 1.5e9'
done
