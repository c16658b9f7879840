bucket() { # NS: 16 buckets to each power of two
    awk -v ns="$1" 'BEGIN { for (width = 1; ns >= 32 * width; width *= 2) shift++; print shift * 16 + int(ns / width) }'
}
for us in 20 200; do
    trusted "$us" nullb0
    device "$us" nullb0 '.ops.read.ios == 2000'
    kernel=$(referee $us.trace 2000)
    ours=$(jq '.devices[0].ops.read.request_stages.device.p50_ns' $us.json)
    apart=$(($(bucket "$ours") - $(bucket "$kernel")))
    [ ${apart#-} -le 1 ] || fail "$us µs: the median is $ours ns, and $kernel ns by the kernel's trace"
    # The rest is the time of the timer, the interrupt, and the programs that run first: 4 to 6 µs in the
    # kernel's trace.
    device "$us" nullb0 '.ops.read.request_stages.device | .min_ns >= $us * 1e3 and .p50_ns <= ($us + 15) * 1e3' us "$us"
done
