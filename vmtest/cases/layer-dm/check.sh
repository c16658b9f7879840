upper=$(cat name)
case $(cat release) in
5.10.*)
    exited reads 3
    grep -q 'bio-based.*name that with -d' reads.err || fail "$(cat reads.err)"
    exit 0
    ;;
esac
for view in reads ring; do trusted $view "$upper"; done
# The file system also writes by itself, before and after the interval.
exited journal 0
device journal "$upper" '.ios > 0 and kernel == [.ios, .ios] and .kernel_check == "ok" and $view.lost.ios == 0'
for view in reads ring journal; do
    device $view "$upper" '.bio_based and .layers[0].name == "nvme0n1" and .layers[0].ios == ($view.devices[] | select(.name == "nvme0n1") | .ios)'
    device $view nvme0n1 ".added_for == [\"$upper\"] and .kernel_check == \"ok\" and .ios > 0"
done
trusted borders dm-1
# The last of three reads crosses the border, and the kernel counts it as two I/Os.
device borders dm-1 '.ios == 4 and .splits == 1 and .ops.read.bio.count == 3 and .ops.read.operations == 3'
for view in reads ring; do
    device $view "$upper" '.ops.read | .bio.count == .ios and .request_stages == {} and .layer.ios == .ios and .layer.mean_ns >= 0 and .layer.lower_mean_ns > .layer.mean_ns'
    device $view "$upper" '.ops.read | .ios_without_operation == 0 and (.stages | has("queue") | not)'
    device $view "$upper" '.ops.read | ([.stages[].sum_ns] | add) == .total.sum_ns and .total.count + (.not_covered | add // 0) == .operations'
    device $view nvme0n1 '.ops.read | .ios_without_operation == .ios and (has("operations") | not)'
    device $view "$upper" '[$view.missing[] | select(.reason == "bio-based" and .device == "'"$upper"'") | .stage] == ["queue", "device", "complete"]'
done
device reads "$upper" '.ops.read.operations == 300'
device ring "$upper" '.ops.read.operations == $ios + 1' ios "$(jq .ios load.json)"
# The journal's commit record is a write with a preflush, which dm splits and counts as two. 7.2 passes
# it on as one.
case $(cat release) in
7.*) device journal "$upper" '.ops.fua | .bio.count == .ios and .ios > 0' ;;
*) device journal "$upper" '.ops.fua | .bio.count * 2 == .ios and .ios > 0' ;;
esac
# The layer is the target of the load, and its disk has the stages that the verdict is about.
expect diagnose.json '.verdict.id != "inconclusive"'
expect diagnose.json '[.latency.devices[] | select(.ios > 0) | .name] | sort == ["dm-0", "nvme0n1"]'
