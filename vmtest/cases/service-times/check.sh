# The median of the trace's differences, in ns, and the bucket of the histogram that holds a time.
median() {
    awk '{ sub(/.*\] [^ ]+ +/, ""); time = $1 * 1e6 }
        / block_rq_issue: / { issued = time }
        / block_rq_complete: / && issued { print int((time - issued) * 1000 + 0.5); issued = 0 }
        ' <(sed 's/: block_rq/ block_rq/' "$1") | sort -n >deltas
    [ "$(wc -l <deltas)" -eq 2000 ] || fail "$(wc -l <deltas) of 2000 reads in $1"
    sed -n 1000p deltas
}
bucket() { # NS: 16 buckets to each power of two
    awk -v ns="$1" 'BEGIN { for (width = 1; ns >= 32 * width; width *= 2) shift++; print shift * 16 + int(ns / width) }'
}
for us in 20 200; do
    trusted "$us" nullb0
    device "$us" nullb0 '.ops.read.ios == 2000'
    # The error of the emulation is additive: 20 to 48 µs, measured on an idle host with other tools.
    device "$us" nullb0 '.ops.read.request_stages.device | .min_ns >= $us * 1e3 and .p50_ns <= ($us + 60) * 1e3' us "$us"
    kernel=$(median $us.trace)
    ours=$(jq '.devices[0].ops.read.request_stages.device.p50_ns' $us.json)
    apart=$(($(bucket "$ours") - $(bucket "$kernel")))
    [ ${apart#-} -le 1 ] || fail "$us µs: the median is $ours ns, and $kernel ns by the kernel's trace"
done
