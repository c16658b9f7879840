for view in alone crowded; do
    trusted $view nullb0
    # null_blk reports when it completes a request, and not when the device was done: no `complete`.
    [[ $(cat release) == 5.10.* ]] || device $view nullb0 '.ops.read.stages | keys == ["device","queue","reap","submit"]'
    # How late the emulator's timers are depends on the host, whose CPUs the hog uses as well. The kernel's own trace
    # of the same reads is the referee.
    kernel=$(referee $view.trace 400)
    device $view nullb0 '.ops.read.request_stages.device | .min_ns >= 1000000 and (.p50_ns - $kernel | fabs) <= 0.07 * $kernel' \
        kernel "$kernel"
done
[[ $(cat release) != 5.10.* ]] || exit 0
mean='.ops.read.stages.reap | .sum_ns / .count'
alone=$(jq ".devices[0] | $mean" alone.json)
device crowded nullb0 "$mean > 3 * \$alone and . > 1000000" alone "$alone"
