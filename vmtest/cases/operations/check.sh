for view in ring waits split; do trusted $view nvme0n1; done
accounted many nvme0n1
[[ $(cat release) == 5.10.* ]] || for view in syncs buffered; do trusted $view nvme0n1; done
case $(cat release) in
5.10.*)
    # No event of 5.10 names the io_uring request: the stages are reported as missing with a reason, not as
    # zero.
    device ring nvme0n1 '(has("operations") or (.ops.read | has("stages"))) | not'
    expect ring.json '[.missing[] | select(.stage == "submit" or .stage == "reap") | .reason] == ["no-event", "no-event"]'
    exit 0
    ;;
esac
# The generator first checks with one read() of each target whether it can be read.
device ring nvme0n1 '.ops.read.operations == $ios + 1' ios "$(jq .ios load.json)"
device waits nvme0n1 '.ops.read.operations == 300'
device split nvme0n1 '.ops.read | .operations == 20 and .ios == 160'
for view in ring waits split; do
    device $view nvme0n1 '.ops.read | .stages | keys == ["complete","device","queue","reap","submit"]'
    device $view nvme0n1 '.ops.read | .ios_without_operation == 0 and .not_covered == {}'
    device $view nvme0n1 '.ops.read | ([.stages[].sum_ns] | add) == .total.sum_ns'
    device $view nvme0n1 '.ops.read | .total.count as $n | all(.stages[]; .count == $n)'
    device $view nvme0n1 '.ops.read | ([.by_total[][3] | add] | add) == .total.sum_ns'
done
# The time in the kernel is within the time that the generator measured.
device ring nvme0n1 '.ops.read.total.sum_ns < $sum and .ops.read.total.sum_ns > $sum / 2' sum "$(jq .latency.sum_ns load.json)"
# A worker executes one request at a time and submits its bios. The call that submitted the request returns
# before that.
joined syncs nvme0n1 100 empty_flush
device buffered nvme0n1 '.ops.read.operations == 20 and ([.ops.read.stages[].sum_ns] | add) == .ops.read.total.sum_ns'
for view in syncs buffered; do
    device $view nvme0n1 '[.ops[] | select(.operations) | .stages | has("submit") and has("complete")] | all and . != []'
done
# If the kernel skips a program for a call that submits or fetches seven, all seven are affected.
device many nvme0n1 '.ops.read | 2240 - .operations + (.not_covered.reap // 0) <= 7 * $view.lost.probes.latency.missed'
device many nvme0n1 '.ops.read | ([.stages[].sum_ns] | add) == .total.sum_ns'
expect many.json '.lost.probes.latency.unfollowed_operations == 0'
