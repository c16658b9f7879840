mapfile -t drives <drives
[ ${#drives[@]} -eq 3 ] || fail "drives: ${drives[*]}"
# All losses are runs that the kernel skipped: the drive with one queue completes in softirqs, which interrupts of the
# others can interrupt, and no kernel since 6.1 runs a program inside itself.
missed=$(jq '.lost.probes.interrupts.missed' interrupts.json)
expect interrupts.json '.lost.ios <= $missed and .lost.events <= $missed' missed "$missed"
# Two adjacent reads may be merged into one I/O.
merges=$(jq '[.devices[].merges] | add' latency.json)
expect interrupts.json '([.devices[].ios] | add) + .lost.ios + $merges >= $ios and .duration_ns > 2e9' \
    ios "$(jq .ios load.json)" merges "$merges"
# A queue per CPU, or as many as the drive has.
expect interrupts.json '[.devices[] as $d | {key: $d.name, value: ([.vectors[] | select(.device == $d.name and .queue != null)]
    | length)}] | from_entries | [.["'"${drives[0]}"'"], .["'"${drives[1]}"'"], .["'"${drives[2]}"'"]] == [1, 3, 4]'
for name in "${drives[@]}"; do
    device interrupts "$name" '(.ios - .kernel_ios_min | fabs) <= $view.lost.probes.interrupts.missed
        and .kernel_ios_min == .kernel_ios_max and .ios > 100'
    # All completions run in the interrupt itself: queue and submitter share a CPU or its cache.
    device interrupts "$name" '.completed.task == 0 and ([.completed[]] | add) == .ios'
    device interrupts "$name" '.reaped_elsewhere <= $view.lost.probes.interrupts.missed'
done
# Each vector has as many interrupts as /proc/interrupts, each with its completions and its time.
expect interrupts.json '[.vectors[] | select(.queue != null)] | length == 8
    and all(.kernel_interrupts_min <= .interrupts + $missed and .interrupts <= .kernel_interrupts_max)
    and all(.kernel_interrupts_min == .kernel_interrupts_max)
    and all(.completions_per_interrupt.count == .interrupts and .completions_per_interrupt.sum == .completions)
    and all(.handler.count >= .interrupts - 1 and .handler.count <= .interrupts)
    and all(([.by_cpu[].interrupts] | add // 0) == .interrupts)
    and all(.queue_known_by == "pointer" or .interrupts == 0)
    and all(([.interrupted[]] | add) == .handler.count)
    and all((.by_cpu | map(.cpu)) - .allowed_cpus == [])
    and all(.empty == ([.completions_per_interrupt.buckets[] | select(.[0] == 0) | .[2]] | add // 0))' missed "$missed"
# Each vector has as many completions as its queue has I/Os in the other view.
jq -n --slurpfile i interrupts.json --slurpfile l latency.json '
    [$i[0].vectors[] | select(.queue != null) | {key: "\(.device) \(.queue)", value: .completions}] | from_entries' >by_vector
jq '[.devices[] | .name as $d | .queues[] | select(.ios > 0) | {key: "\($d) \(.queue)", value: .ios}] | from_entries' \
    latency.json >by_queue
lost=$(jq '.lost.probes.latency.missed' latency.json)
jq -en --slurpfile v by_vector --slurpfile q by_queue --argjson slack $((missed + lost)) \
    '$q[0] | to_entries | length > 0 and all((.value - $v[0][.key] | fabs) <= $slack)' >/dev/null ||
    fail "by vector $(jq -c . by_vector), by queue $(jq -c . by_queue)"
# The intervals add up to the whole load.
jq -es 'length >= 3 and all(.schema == "biopsy.interrupts/1") and all(.duration_ns < 1.9e9)
    and all(.[]; all(.vectors[]; .queue == null or .interrupts >= .completions_per_interrupt.count - 1))' pieces.json \
    >/dev/null || fail "the pieces: $(jq -c '[.duration_ns, (.vectors | map(.interrupts))]' pieces.json | head -5)"
grep -q '^check interrupts of .* vectors: measured .*: ok$' idle.txt || fail "an idle window: $(cat idle.txt)"
