disk=$(cat disk)
for view in latency detail; do
    trusted $view "$disk"
    device $view "$disk" '.ops.read.ios == 60 and .merges == 360 and .bytes == 420 * 4096'
    parts=$(grep -c ': block_rq_complete: ' $view.trace) && requeued=$(grep -c ': block_rq_requeue: ' $view.trace)
    [ "$parts" -ge 80 ] || fail "$parts completions of 60 requests"
    device $view "$disk" '.retries + .requeues == $n' n "$requeued"
done
[[ $(cat release) != 5.10.* ]] || exit 0
for view in latency detail; do joined $view "$disk" 420; done
# Operations have the parts of their requests: each of the seven operations of a request has them.
device detail "$disk" '.ops.read | (.parts.queue.requeue == null) and .parts.device.retry.count == 4 * .request_parts.device.retry.count'
device detail "$disk" '.ops.read | (.parts.queue.alloc.min_ns // 0) >= (.request_parts.queue.alloc.min_ns // 0)'
# Operations that completed with the first part have no event, and are counted.
exited lines 0
jq -se 'map(select(.summary)) as [$all] | ($all.lost.probes.trace.operation_before_io) as $early | $early > 0 and
    ([.[] | .operation, .merged_operations[]? | select(. != null) | .id] | unique | length) + $early == 420' lines.json \
    >/dev/null || fail "the lines: $(jq -c 'select(.summary) | .lost' lines.json)"
