# Programs that follow operations, and those of --detail, are reported as missing if the kernel has no event
# for them.
follows='["sys_enter", "sys_exit", "ring_submit_req", "ring_submit_sqe", "ring_complete", "ring_wait", "bio_getrq", "rq_insert", "ring_queue_work", "task_waking", "task_switch", "call_enter", "call_exit"]'
followed=ok done=ok locks=ok
case $(cat release) in
5.10.*) followed=missing done=missing locks=missing ;;
6.1.*) done=missing ;;
esac
expect check.json '[.programs[] | select(.name as $n | $follows | index($n))] | length == 12 and all(.state == $state)' \
    follows "$follows" state "\"$followed\""
# block_io_done exists since 6.5.
expect check.json '[.programs[] | select(.name == "io_done") | .state] == [$state]' state "\"$done\""
# The contention events exist since 5.19.
expect check.json '[.programs[] | select(.name == "lock_begin" or .name == "lock_end") | .state] == [$state, $state]' \
    state "\"$locks\""
# The page-cache events were added one by one, from 5.16 to 6.16.
pagecache='["throttled", "ra_unbounded", "get_pages"]'
case $(cat release) in
5.10.*) lacks='["throttled", "ra_unbounded", "get_pages"]' ;;
6.1.*) lacks='["ra_unbounded", "get_pages"]' ;;
6.12.*) lacks='["ra_unbounded"]' ;;
*) lacks='[]' ;;
esac
expect check.json '[.programs[] | select(.name as $n | $pagecache | index($n)) | select(.state != "ok") | .name] == $lacks' \
    pagecache "$pagecache" lacks "$lacks"
others='["throttled", "ra_unbounded", "get_pages", "lock_begin", "lock_end", "nvme_sq", "nvme_sq_raw", "io_done", "bio_complete"]'
expect check.json '[.programs[] | select(.name as $n | $follows + $others | index($n) | not)]
    | length > 8 and all(.state == "ok")' follows "$follows" others "$others"
if [ -e module-btf ]; then
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "ok"'
else
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "missing" and (.reason | test("BTF"))'
fi
case $(cat release) in
5.10.*)
    expect check.json '[.views[] | select(.name == "latency" or .name == "diagnose")
        | .state == "degraded" and (.reason | startswith("block layer only, best effort"))] == [true, true]'
    ;;
*) expect check.json '.views[] | select(.name == "latency") | .state == "ok"' ;;
esac
