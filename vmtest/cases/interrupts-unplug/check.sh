exited interrupts 4
[ "$(wc -l <interrupts.err)" -eq 1 ] || fail "not one sentence: $(cat interrupts.err)"
grep -q 'nvme0n1 vanished' interrupts.err || fail "the sentence does not name the drive: $(cat interrupts.err)"
device interrupts nvme0n1 '.ios > 100'
expect interrupts.json '([.vectors[] | select(.queue != null) | .completions] | add) > 100 and .duration_ns < 60e9'
