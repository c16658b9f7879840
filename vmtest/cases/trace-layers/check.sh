case $(cat release) in
5.10.*)
    exited reads 3
    grep -q 'bio-based.*name that with -d' reads.err || fail "$(cat reads.err)"
    exit 0
    ;;
esac
# The lines of a run as one list, and the summary after them.
for run in reads ring top both border stripe split zram; do
    exited $run 0
    jq -s '{lines: .[:-1], summary: .[-1]}' "$run.json" >"$run.all"
    expect $run.all '.summary.lost | .ios == 0 and .events == 0'
    expect $run.all 'all(.summary.devices[]; .kernel_check == "ok")'
    expect $run.all 'all(.lines[]; .owner.tid > 0 and .submit_cpu >= 0 and .completion_cpu >= 0)'
done
# An I/O that the kernel counts as several is one line, which has the number.
for run in reads ring border stripe split zram; do
    expect $run.all '([.lines[] | .counted // 1] | add) == $ios and .summary.devices[0].ios == $ios' ios "$(cat $run.ios)"
    expect $run.all 'all(.lines[]; .request_stages == {} and .bio_ns > 0 and (has("queue") | not))'
    expect $run.all '[.summary.missing[] | select(.reason == "bio-based") | .stage] == ["queue", "device", "complete"]'
    expect $run.all '.summary.devices | length == 1'
    # The lines and the view's own tables agree, to the nanosecond.
    expect $run.all '([.lines[] | select(.op == "read") | .bio_ns] | add) == .summary.devices[0].ops.read.bio.sum_ns'
    expect $run.all 'all(.lines[].operation | select(.stages); .total_ns == ([.stages[]] | add) and (.stages | has("queue") | not))'
    expect $run.all '([.lines[].bytes // 0] | add) == .summary.devices[0].bytes'
done
for run in reads zram; do
    expect $run.all '[.lines[] | select(.op == "read") | .offset] | sort == [range(length) * 4096]'
done
expect reads.all '.lines | length == 300 and all(.operation.last and .owner.comm == "dd" and .bytes == 4096)'
expect zram.all '[.lines[] | select(.op == "write") | .offset] | sort == [range(100) * 65536]'
expect ring.all '[.lines[] | select(.operation.kind == "io_uring") | .operation.user_data] | unique | length > 1'
expect stripe.all 'all(.lines[]; .bio_ns > 2e6 and .op == "read")'
expect top.all '.lines | length == 5 and ([.[].bio_ns] | . == (sort | reverse))'
expect top.all '.lines[0].bio_ns == .summary.devices[0].ops.read.bio.max_ns'
# The lower device has its own lines if it is named: they have requests, and the operation belongs to
# the upper device.
expect both.all '[.lines[] | select(.device == "nvme0n1")] | length == 100 and all(has("request_total_ns") and (has("operation") | not))'
expect both.all '[.lines[] | select(.device != "nvme0n1")] | length == 100 and all(has("bio_ns") and .operation.last)'
# The second of two reads crosses the border.
expect border.all '[.lines[] | [.offset % 40960, .bytes, .counted]] | sort == [[0, 40960, null], [0, 40960, 2]]'
expect split.all '[.lines[].operation.id] | unique | length == 10'
