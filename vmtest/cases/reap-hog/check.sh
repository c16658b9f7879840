for view in alone crowded; do
    trusted $view nullb0
    # null_blk says when it completes a request and not when it saw its end: no `complete`.
    [[ $(cat release) == 5.10.* ]] || device $view nullb0 '.ops.read.stages | keys == ["device","queue","reap","submit"]'
    device $view nullb0 '.ops.read.request_stages.device | .min_ns >= 1000000 and .p50_ns < 2000000'
done
[[ $(cat release) != 5.10.* ]] || exit 0
mean='.ops.read.stages.reap | .sum_ns / .count'
alone=$(jq ".devices[0] | $mean" alone.json)
device crowded nullb0 "$mean > 3 * \$alone and . > 1000000" alone "$alone"
