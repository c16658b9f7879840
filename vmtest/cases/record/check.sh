for run in views each; do
    # Status 4: on a busy host scans of threads are missed, and 7.x may skip programs. The sums below include the
    # losses.
    [ "$(cat $run.exit)" -eq 4 ] || exited $run 0
    tar -xf $run.tar
    zstd -dqc $run/latency.ndjson.zst >$run.lines
    # The lines read in the guest equal those in the file.
    cmp -s $run.lines $run.latency || fail "$run: read in the guest: $(cat $run.latency-err)"
    jq -se --argjson ios "$(cat $run.ios)" '[.[].devices[] | select(.name == "nvme0n1")] | length >= 1
        and ([.[] | .ios, .lost_ios] | add) == $ios' $run.lines >/dev/null ||
        fail "$run: not the kernel's $(cat $run.ios): $(jq -c '.devices[] | [.name, .ios, .lost_ios]' $run.lines | tr '\n' ' ')"
    expect $run/manifest.json '.schema == "biopsy.recording/1" and .ended == "command" and .command_status == 0
        and all(.views[]; .error == null and .intervals > 0)'
done
# A view that this kernel does not support is listed as missing. top needs no such support.
expect views/manifest.json '(.views | has("latency") and has("top") and has("threads"))
    and ((.views | keys) + [.missing[].part] | sort)
        == ["errors", "interrupts", "latency", "locks", "stacks", "system", "threads", "top"]'
expect each/manifest.json '.views.trace.bytes > 1000'
[ "$(head -c 4 each/io/part-000000.parquet)" = PAR1 ] || fail "each/io has no Parquet"
zstd -dqc each/trace.ndjson.zst >trace.json
expect trace.json '.summary and .shown == $ios and .lost.events == 0' ios "$(cat each.ios)"
