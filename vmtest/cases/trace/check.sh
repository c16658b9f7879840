# The lines of a run as one list, and the summary after them.
for run in ring waits top every full; do
    jq -s '{lines: .[:-1], summary: .[-1]}' "$run.json" >"$run.all"
    expect "$run.all" '.summary | .summary and .devices[0].kernel_check == "ok"'
    expect "$run.all" '.summary.devices[0] | .kernel_ios_min == $ios and .kernel_ios_max == $ios' \
        ios "$(cat "$run.ios")"
done
for run in ring waits top every; do
    exited $run 0
    expect $run.all '.summary.lost | .ios == 0 and .events == 0'
    expect $run.all 'all(.lines[]; .request_total_ns == ([.request_stages[]] | add))'
    expect $run.all 'all(.lines[]; .device == "nvme0n1" and .qid == .queue + 1 and .op == "read")'
    expect $run.all 'all(.lines[]; .owner.tid > 0 and (.owner.cgroup_id | . == null or . > 0))'
done
for run in ring waits; do
    expect $run.all '.lines | length == $ios and ([.[].io] | unique | length) == $ios' ios "$(cat $run.ios)"
done
expect top.all '.lines | length == 5 and ([.[].request_total_ns] | . == (sort | reverse))'
expect top.all '.lines[0].request_total_ns >= .summary.devices[0].ops.read.request_stages.device.max_ns'
# Each CPU has its own counter with a random start.
expect every.all '.summary.matched == 300 and (.lines | length) >= 24 and (.lines | length) <= 36'
# I/Os that did not fit are all counted, and are more than allowed.
exited full 4
expect full.all '(.lines | length) + .summary.lost.probes.trace.io_ring_full == $ios' ios "$(cat full.ios)"
expect full.all '.summary.lost.probes.trace.io_ring_full > 0'

case $(cat release) in
5.10.*)
    # No event of 5.10 names the io_uring request.
    expect ring.all 'all(.lines[]; has("operation") | not)'
    exit 0
    ;;
esac
for run in ring waits; do
    expect $run.all 'all(.lines[]; .operation.last and .operation.ios == 1)'
    expect $run.all 'all(.lines[].operation; .total_ns == ([.stages[]] | add))'
    # The view's table has operations with all stages only. Sometimes the fetch of a result is not
    # observed, and adjacent I/Os share a request.
    expect $run.all '([.lines[] | .operation, (.merged_operations // [])[] | select(.stages.reap) | .total_ns] | add) ==
        .summary.devices[0].ops.read.total.sum_ns'
    expect $run.all 'all(.lines[].operation.stages; del(.reap) | keys == ["complete","device","queue","submit"])'
    expect $run.all '.summary | .ios_without_end == 0 and .operations_without_io == 0'
done
expect waits.all 'all(.lines[]; .operation.kind == "call" and .owner.comm == "dd")'
expect ring.all '[.lines[] | select(.operation.kind == "io_uring") | .operation.user_data] | unique | length > 1'
