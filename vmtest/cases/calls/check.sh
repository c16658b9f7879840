counts='[.devices[0].ops | to_entries[] | [.key, .value.ios, .value.operations, (.value.stages // {} | map_values(.count))]]'
# Without queue: its two events have the same programs in both modes, and on 7.x the kernel itself takes some
# microseconds more or less for it from run to run.
means='[.devices[0].ops[].stages // {} | to_entries[] | select(.value.count >= 2000 and .key != "queue")
    | [.key, .value.sum_ns / .value.count]]'
for load in ring pread libaio read fsync; do
    trusted $load.functions nullb0
    trusted $load.events nullb0
    # 5.10 follows no operations, and therefore no system calls.
    if [ "$BIOPSY_VM_KERNEL" = 5.10 ]; then
        expect $load.functions.json '[.missing[] | select(.part == "functions" and .reason == "refused")] | length == 1'
        continue
    fi
    expect $load.functions.json '[.missing[] | select(.part == "functions")] == []'
    attached=$(for word in trace_fentry trace_fexit sys_enter sys_exit; do grep -c $word $load.functions.links || true; done | xargs)
    [ "$attached" = '25 25 0 0' ] || fail "$load: not by functions: $(cat $load.functions.links)"
    grep -q sys_enter $load.events.links || fail "$load: not by events: $(cat $load.events.links)"
    expect $load.functions.json "($counts) == \$other" other "$(jq "$counts" $load.events.json)"
    expect $load.functions.json "$means"' as $mine | ($mine | map(.[0])) == ($other | map(.[0]))
        and ([$mine, $other] | transpose | all((.[0][1] - .[1][1] | fabs) <= 200))' other "$(jq "$means" $load.events.json)"
done
[ "$BIOPSY_VM_KERNEL" = 5.10 ] || for load in ring pread read fsync; do
    expect $load.functions.json "$means | length >= 3"
done
