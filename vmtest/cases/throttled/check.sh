# As many reads, except runs that the kernel skipped (7.x).
whole() { # NAME DISK READS
    exited "$1" 0
    joined "$1" "$2" "$3"
    device "$1" "$2" '($n - .ops.read.ios | fabs) <= $view.lost.probes.latency.missed' n "$3"
}
# Most of the slow ones were throttled. All belong to their submitter.
slow() { # NAME COMM KIND
    exited "$1" 0
    jq -s '{lines: .[:-1], summary: .[-1]}' "$1.json" >"$1.all"
    expect "$1.all" '[.lines[] | select(.request_stages.queue > 1e7)] | length > 10'
    expect "$1.all" 'all(.lines[]; .owner.comm == "'"$2"'")'
    # A result that is fetched without a system call ends no operation: its line then has only the operation's
    # number.
    expect "$1.all" '[.lines[].operation.kind] | (map(select(. == "'"$3"'")) | length > 10) and (. - ["'"$3"'", null] == [])'
}
for view in v2 v1; do
    trusted "$view" nullb0
    device "$view" nullb0 '.ops.read.request_stages.device | .min_ns >= 5e5 and .sum_ns < 0.3e9'
    [[ $(cat release) != 5.10.* ]] || continue
    # 40 reads at 20 per second take 2 s, minus the disk's own time and a burst at the beginning.
    joined "$view" nullb0 40
    device "$view" nullb0 '.ops.read.stages | .queue.sum_ns > 1.5e9 and .submit.sum_ns < 0.2e9'
    device "$view" nullb0 '.ops.read.parts.queue.throttle.sum_ns > 1.5e9'
    whole "$view-comm" nullb0 40
    whole "$view-pid" nullb0 40
    exited "$view-groups" 0
    expect "$view-groups.json" '[.groups[] | select(.by.process.comm == "dd") | .operations] | add >= 40 - $missed' \
        missed "$(jq .lost.probes.latency.missed "$view-groups.json")"
    slow "$view-slow" dd call
done
[[ $(cat release) != 5.10.* ]] || exit 0
# Throttled I/Os without an operation would be listed as missing.
for view in v2 v1 v2-comm v1-comm v2-pid v1-pid aio layer large large-ring; do
    expect "$view.json" 'all(.missing[]; .reason != "throttled" or .part != "throttle")'
done
exited layer 0
device layer "$(cat name)" '($n - .ops.read.operations | fabs) <= $view.lost.probes.latency.missed and .ops.read.ios_without_operation == 0' n 40
device layer nullb0 '($n - .ops.read.ios | fabs) <= $view.lost.probes.latency.missed' n 40
device layer "$(cat name)" '.ops.read | .stages.queue.sum_ns > 1.5e9 and ([.stages[].sum_ns] | add) == .total.sum_ns'
trusted aio nullb0
# The generator checks whether the disk can be read, and fetches some results without a system call: for the last
# ones it is unknown that they were fetched.
device aio nullb0 '.ops.read | (.operations + .unfetched - $n | fabs) + .ios_without_operation <= $view.lost.probes.latency.missed
    and ([.stages[].sum_ns] | add) == .total.sum_ns' n $(($(jq .ios aio-traced.json) + 1))
device aio nullb0 '.ops.read.stages.queue.sum_ns > 1.5e9'
device aio nullb0 '.ops.read.parts.queue.throttle.sum_ns > 1.5e9'
slow aio-slow load-0 aio
trusted large nullb0
joined large nullb0 10
device large nullb0 '.ops.read.stages | .queue.sum_ns > 1e9 and .submit.sum_ns < 0.1e9 and .reap.sum_ns < 0.1e9'
trusted large-ring nullb0
device large-ring nullb0 '.ops.read | (.operations + .unfetched - $n | fabs) + .ios_without_operation <= $view.lost.probes.latency.missed
    and ([.stages[].sum_ns] | add) == .total.sum_ns' n $(($(jq .ios large-load.json) + 1))
device large-ring nullb0 '.ops.read.stages | .queue.sum_ns > 1.5e9 and .submit.sum_ns < 0.3e9'
