# Reading zeroes gives a warning with their share.
exited fresh 0
expect fresh.json '.content | .samples == 64 and .empty == 64 and .zeros == 64 and .empty_percent == 100'
grep -q '64 of 64 sampled blocks of /dev/nvme0n1 (100 %) are empty' fresh.err || fail "no warning: $(cat fresh.err)"
expect fresh.json '.namespace | .size_bytes == 134217728 and .used_bytes != null'
# QEMU's drive has temperatures, but no host-controlled thermal management with counters.
expect fresh.json '.thermal | .celsius_before > 0 and .celsius_after > 0 and .suffered == null and .t1.entered == null and
    .warning_minutes == 0 and .critical_minutes == 0'
expect fresh.json '.written == null and .write_cliff == null and ([.missing[].why] | any(contains("thermal")) | not)'
exited blind 0
expect blind.json '.content == null and .namespace == null and .thermal == null'
[ ! -s blind.err ] || fail "$(cat blind.err)"

# Preconditioning writes, and needs the same options as writing.
for name in unsaid unnamed; do
    exited "$name" 2
    [ "$(wc -l <"$name.err")" -eq 1 ] || fail "$name: not one sentence: $(cat "$name.err")"
done
grep -qF 'add --write' unsaid.err || fail "$(cat unsaid.err)"
grep -qF -- '--destroy-data-on nvme0n1' unnamed.err || fail "$(cat unnamed.err)"
cmp before.sum after.sum || fail 'the drive changed although nothing was allowed'

exited prepared 0
expect prepared.json '.precondition | .targets == ["/dev/nvme0n1"] and .area_bytes == 16777216 and
    .fill.bytes == 16777216 and .fill.block_bytes == 1048576'
expect prepared.json '.precondition | (.rounds | length >= 5 and length <= 25) and
    all(.rounds[]; .ios > 0 and .bytes == .ios * 4096 and .duration_ns >= 250000000)'
expect prepared.json '.precondition | .steady == (.end == "steady") and
    .steady == (.window.range_percent <= 20 and .window.slope_percent <= 10)'
expect prepared.json '.rw == "randread" and .errors == 0 and .ios > 0'
expect prepared.json '.content | .samples == 64 and .empty == 0'
! grep -q 'are empty' prepared.err || fail "$(cat prepared.err)"
cmp rest-before.sum rest-after.sum || fail 'more than the area was written'

exited written 0
expect written.json '.content == null and (.written | length >= 10) and
    ([.written[][1]] | add) as $series | $series > .bytes / 2 and $series <= .bytes'
grep -q '^content     0 of 64 sampled blocks empty' text.out || fail "$(cat text.out)"
grep -qE '^thermal     [0-9]+ to [0-9]+ °C, not counted by this drive: throttling$' text.out || fail "$(cat text.out)"

exited unprivileged 0
expect unprivileged.json '.content.samples == 64 and .thermal == null'
expect unprivileged.json '[.missing[].why] | any(contains("thermal throttling: the drive cannot be queried") and contains("root"))'
