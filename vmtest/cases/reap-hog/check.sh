for view in alone crowded; do
    trusted $view nullb0
    # null_blk says when it completes a request and not when it saw its end: no `complete`.
    [[ $(cat release) == 5.10.* ]] || device $view nullb0 '.ops.read.stages | keys == ["device","queue","reap","submit"]'
    # How late the emulator's timers are is the host's, whose CPUs the hog takes as well: the kernel's own trace of the
    # same reads is the referee.
    kernel=$(referee $view.trace 400)
    device $view nullb0 '.ops.read.request_stages.device | .min_ns >= 1000000 and (.p50_ns - $kernel | fabs) <= 0.07 * $kernel' \
        kernel "$kernel"
done
[[ $(cat release) != 5.10.* ]] || exit 0
mean='.ops.read.stages.reap | .sum_ns / .count'
alone=$(jq ".devices[0] | $mean" alone.json)
device crowded nullb0 "$mean > 3 * \$alone and . > 1000000" alone "$alone"
