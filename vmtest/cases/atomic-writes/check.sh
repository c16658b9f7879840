for engine in io_uring libaio pvsync2; do
    if [ "$(cat unit)" = 0 ]; then
        [ "$(cat $engine.exit)" != 0 ] || fail "$engine wrote where nothing is atomic"
        [ -s $engine.err ] || fail "$engine: no error"
        continue
    fi
    exited $engine 0
    expect $engine.json '.ios == 500 and .errors == 0'
    # 6.12 supports them, but its event has no letter for them.
    [[ $(cat release) != 6.12.* ]] || continue
    # U is the letter of an atomic request.
    marked=$(grep -cE 'block_rq_issue: [0-9,]+ W[A-Z]*U' $engine.trace) || true
    [ "$marked" = 500 ] || fail "$engine: $marked of 500 requests are atomic: $(grep -m3 block_rq_issue $engine.trace)"
done
# QEMU's drive does not support them.
[ "$(cat without.exit)" != 0 ] || fail "the drive without atomic writes took them"
[ -s without.err ] || fail "no error"
