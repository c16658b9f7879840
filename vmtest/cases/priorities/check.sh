for engine in io_uring libaio; do
    expect $engine.json '.ios == 1000 and ([.directions.read.priorities[].lat.count] | add == 1000 and min > 200)'
    # Before 6.8 the event has no priority.
    grep -qE 'block_rq_issue: .* (none|rt|be|idle),[0-9],[0-9] ' $engine.trace || continue
    own=$(grep -cE 'block_rq_issue: .* R[A-Z]* 4096 .* rt,0,2 ' $engine.trace) || true
    others=$(grep -cE 'block_rq_issue: .* R[A-Z]* 4096 .* idle,0,0 ' $engine.trace) || true
    expect $engine.json '[.directions.read.priorities[] | [.class, .level, .lat.count]] | sort ==
        [[null, null, $others], [1, 2, $own]]' own "$own" others "$others"
done
