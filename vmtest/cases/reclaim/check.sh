# The increase of a counter between two copies of /proc/vmstat; several lines (allocstall_*) are one counter.
went() { # BEFORE AFTER EXPRESSION
    awk -v name="^($3)\$" '$1 ~ name { sum += FILENAME == ARGV[1] ? -$2 : $2 } END { print sum + 0 }' "$1" "$2"
}
# The view's figure is between the increase within the command, and the increase around the whole run.
counter() { # KEY EXPRESSION
    expect locks.json '.pagecache.counters[$key] | .min >= $least and .max <= $most and .min > 0 and .max >= .min' \
        key "\"$1\"" least "$(went inner-before inner-after "$2")" most "$(went outer-before outer-after "$2")"
}
counter scanned_direct pgscan_direct
counter scanned_kswapd pgscan_kswapd
counter stolen_direct pgsteal_direct
counter stolen_kswapd pgsteal_kswapd
counter stalls 'allocstall_.*'
counter kswapd_runs pageoutrun
counter scanned_file pgscan_file
expect locks.json '.pagecache | .scanned_pages == .counters.scanned_file.min
    and .stolen_pages == .counters.stolen_file.min and .refault_pages == .counters.refault_file.min'
# Each wake-up of kswapd and each reclaim of a task has its event. A task may retry, which counts as a stall.
expect locks.json '.pagecache | .reclaims.kswapd as $k | .reclaims.direct as $d |
    $k.count >= .counters.kswapd_runs.min and $k.count <= .counters.kswapd_runs.max
    and $k.scanned_pages > 0 and $k.ns > 0
    and $d.count > 0 and $d.count <= .counters.stalls.max and $d.ended <= $d.count and $d.ended >= $d.count - 8
    and $d.scanned_pages > 0 and $d.ns > 0 and $d.histogram.count == $d.ended
    and .reclaims.memcg.count == 0'
# With the two-list LRU, the batches add up to the kernel's counters.
expect locks.json '.pagecache | .lru != "two lists" or ([.checks[] | .holds] | all)'
expect locks.json '.pagecache.checks | length == 2 and all(.seen > 0)'
# The reclaiming tasks are the readers, in their cgroup.
expect locks.json '[.pagecache.reclaimers[] | select(.kind == "direct")] | length > 0 and ([.[].comm] | index("dd") != null)
    and all(.count > 0 and .ns >= .max_ns)'
# At least four of the functions, each called, with no more time spinning than in total.
expect locks.json '.pagecache.paths | map(select(.source == "fentry" or .source == "kprobe")) | length >= 4
    and (map(select(.calls > 0)) | length >= 3) and all(.spin_ns[0] <= .ns)
    and (map(select(.function == "shrink_lruvec" or .function == "evict_folios") | .calls) | add > 0)'
# 10 times per second, with the free memory running out and the throughput of the disk. A busy host is late.
expect locks.json '.pagecache.series as $s | ($s | length) as $n | $n >= 5
    and ([$s[].duration_ns] | min) > 1e7 and ([$s[].scanned_pages] | add) > 0 and ([$s[].read_bytes] | add) > 1e9
    and ([$s[].direct_reclaims] | add) > 0 and ([$s[].free_bytes] | min) < 1e8 and all($s[]; .system_percent != null)'
expect locks.json '.pagecache | .nodes | length == 1 and .[0].zones[0].min_pages > 0 and .[0].free_bytes > 0'
case $(cat release) in
5.10.* | 6.1.*)
    expect locks.json '.pagecache.lru == "two lists"'
    expect locks.json '.pagecache.readahead.wanted_pages == null and ([.missing[].part] | index("readahead.unused_pages") != null)'
    ;;
*)
    expect locks.json '.pagecache.lru == "multi-generational"'
    # A long read is reported in pieces, each up to its end: it must count once.
    expect locks.json '.pagecache.readahead | .wanted_pages > .asked_pages * 0.8 and .wanted_pages < .asked_pages * 1.5'
    ;;
esac
# Data that was read had been read ahead, unless it was in the cache.
expect locks.json '.pagecache.readahead.asked_pages * 4096 >= ([.pagecache.series[].read_bytes] | add) * 0.9'
# All losses are runs that the kernel skipped (7.x), and calls in progress at the start or the end.
expect locks.json '.lost.probes.pagecache | .no_room == 0 and .unnamed == 0 and .no_node == 0 and .path_no_room == 0
    and .no_begin <= 8 + .missed'
grep -q '^memory  free ' idle.txt || fail "an idle window: $(cat idle.txt)"
# Everything is measured in the interval of the I/Os. At most a quarter of the time for attaching, detaching and
# resolving names, which is longer on a busy host, may be within the interval of any probe.
around=$(cat began ended | awk '{ now = $1 * 1e9 } NR == 1 { began = now } END { printf "%.0f", now - began }')
expect diagnose.json '.duration_ns as $own | ($own + ($around - $own) / 4) as $most |
    ([.locks.pagecache.series[].duration_ns] | add) < $most and .cpu.time.all.wall_ns / 4 < $most' around "$around"
# The readers' problem is found, whether or not it is a storm, and not on an idle machine. On a busy host everything
# else takes so long that a tenth of a thread is not reached.
expect diagnose.json '(.locks.pagecache.reclaims.direct | .count < 100) or
    ((.locks.pagecache.reclaims.direct.ns / .duration_ns) as $threads | [.findings[].id]
        | $threads < 0.11 or index("direct-reclaim") != null or index("pagecache-storm") != null)'
expect diagnose.json '.locks.pagecache | .reclaims.direct.count > 0 and (.series | length > 3)'
expect diagnose.json '.threads | .rounds > 0 and ([.threads[] | select(.comm == "dd")] | length > 0)'
expect quiet.json '[.findings[].id] | map(select(. == "direct-reclaim" or . == "pagecache-storm" or . == "lock-contention"
    or . == "readahead" or . == "worker-punt")) == []'
