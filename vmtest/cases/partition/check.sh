for disk in nullb0 nvme0n1; do
    trusted "$disk" "$disk"
    expect "$disk.json" '[.devices[].name] == ["'"$disk"'"]'
    device "$disk" "$disk" '(has("disk") | not) and (.ops.read | .ios == 600 and .request_stages.queue.count == 600)'
    [[ $(cat release) == 5.10.* ]] || joined "$disk" "$disk" 600
    for part in first:p1:300 second:p2:100; do
        IFS=: read -r name number reads <<<"$part"
        trusted "$name-$disk" "$disk$number"
        expect "$name-$disk.json" '[.devices[] | [.name, .disk]] == [["'"$disk$number"'", "'"$disk"'"]]'
        device "$name-$disk" "$disk$number" '.ops.read | .ios == $n and .request_stages.queue.count == $n' n "$reads"
        device "$name-$disk" "$disk$number" '.kernel_check == "ok"'
        [[ $(cat release) == 5.10.* ]] || joined "$name-$disk" "$disk$number" "$reads"
    done
    trusted "mixed-$disk" "${disk}p1"
    device "mixed-$disk" "${disk}p1" '.kernel_check == "ok" and .ops.read.ios > 0 and .ops.write.bytes >= 500 * 4096'
    if [ -s "lines-$disk.json" ] && [[ $(cat release) != 5.10.* ]]; then
        exited "lines-$disk" 0
        [ "$(jq -s 'map(select(.summary | not)) | length' "lines-$disk.json")" -eq 100 ] || fail "not 100 lines of $disk"
        [ "$(jq -r 'select(.summary | not) | .device' "lines-$disk.json" | sort -u)" = "${disk}p2" ] || fail "other lines"
    fi
done
exited both 2
grep -q 'name nullb0, or one of its partitions' both.err || fail "$(cat both.err)"
grep -q 'nvme0n1p1 is a partition of nvme0n1: interrupts are those of the whole disk' interrupts.err ||
    fail "$(cat interrupts.err)"
