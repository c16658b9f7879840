views=latency
[ ! -e told.json ] || views='latency told'
for view in $views; do
    exited "$view" 0
    expect "$view.json" '.lost.ios == 0 and .lost.events == 0'
    device "$view" nvme0n1 '.ops | keys == ["passthrough","read"] and .passthrough.ios == 150 and .read.ios == 50'
    device "$view" nvme0n1 '.ios == 200 and .ops.passthrough.request_stages.device.count == 150'
done
expect latency.json '.kernel_classes.none == ["passthrough"]'
counted_too() { # VIEW
    [ "$(cat "$1.ios")" -eq 200 ] || fail "the kernel counted $(cat "$1.ios")"
    device "$1" nvme0n1 '.kernel_ios_min == null and .kernel_check == null'
}
if [[ $(cat release) == 5.10.* ]]; then
    counted_too latency
    exit 0
fi
[ "$(cat latency.ios)" -eq 50 ] || fail "the kernel counted $(cat latency.ios)"
device latency nvme0n1 'kernel == [50, 50] and .kernel_check == "ok"'
[[ $(cat release) != 7.* ]] || counted_too told
# Operations are the ioctl and the io_uring request. No event marks when they enter the block layer.
joined latency nvme0n1 50
for view in latency ring detail; do
    exited $view 0
    joined $view nvme0n1 150 passthrough
    device $view nvme0n1 '.ops.passthrough.stages | keys == ["complete","device","reap","submit"]'
    device $view nvme0n1 '.ops.passthrough | ([.by_total[][3] | add] | add) == .total.sum_ns'
    device $view nvme0n1 '.ops.passthrough | .stages.device.sum_ns == .request_stages.device.sum_ns'
    expect $view.json '[.missing[] | select(.stage == "queue") | .included_in] == ["submit"]'
done
for view in latency ring; do
    # The time in the kernel is within the time that the caller measured.
    device $view nvme0n1 '.ops.passthrough.total.sum_ns | . < $sum and . > $sum / 3' sum "$(cat $view.ns)"
done
# The processes that issued them.
exited by 0
expect by.json '[.groups[] | [.by.process.comm, .by.op, .ios, .operations]] | sort ==
    [["dd", "read", 50, 50], ["issue", "passthrough", 150, 150]]'
exited comm 0
device comm nvme0n1 '.ios == 150 and .ops.passthrough.operations == 150'
exited lines 0
# Lines appear as operations end, per CPU: not exactly in the order of issue.
jq -se '[.[] | select(.op == "passthrough")] | length == 150 and ([.[].operation.user_data] | sort) == [range(150)]' \
    lines.json >/dev/null || fail "the lines of commands: $(jq -c 'select(.op == "passthrough") | .operation.user_data' lines.json | tr '\n' ' ')"
odd=$(jq -c 'select(.op == "passthrough") | select(.owner.comm != "issue" or .offset != null or
    (.operation | (.stages | add) != .total_ns or .opcode != 46))' lines.json)
[ -z "$odd" ] || fail "the lines of commands: $odd"
