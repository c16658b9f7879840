# A figure that grew by more than 3 % is a failure; `vmtest/run --record '' instructions` updates the record. The figure
# is the median of three rounds, and their spread is recorded with it. For interrupts and lock waits it is the minimum:
# other activity can only add to it.
set -o pipefail
reads=20000

# took NAME DEPTH: instructions per read.
took() {
    jq -e --argjson n $reads 'select(.ios == $n and .errors == 0) | .duration_ns / 2 / $n' "$1.depth-$2" ||
        fail "$1: the load with depth $2 did not make $reads reads" >&2
}
# inside NAME DEPTH BEFORE: instructions of all programs per read, without those of depth BEFORE.
inside() {
    jq -s --argjson n $reads 'map(map(.run_time_ns // 0) | add) | (.[1] - .[0]) / 2 / $n' \
        "$1.depth-$3.programs" "$1.depth-$2.programs"
}
# runs FILE FIRST LAST: instructions of one run of each of the two programs, added up; empty if one never ran.
runs() {
    jq --arg first "$2" --arg last "$3" 'map(select(.run_cnt)) as $ran
        | [$first, $last] | map(. as $name | $ran | map(select(.name == $name))
            | select(. != []) | (map(.run_time_ns) | add) / (map(.run_cnt) | add))
        | select(length == 2) | add / 2' "$1"
}
# summed PER NAME: turns one figure per round (stdin) into the line of the record.
summed() {
    sort -g | awk -v what="$BIOPSY_VM_KERNEL $*" '{ all[NR] = $1 }
        END {
            if (NR == 0) print what, "refused"
            else if (NR != 3) { print what ": " NR " rounds in place of 3" >"/dev/stderr"; exit 1 }
            else printf "%s %.0f %.1f\n", what, all[what ~ / depth| programs/ ? 2 : 1], (all[3] - all[1]) / all[2] * 100
        }'
}

# A view that measures less must not pass as cheap.
for round in 1 2 3; do
    for view in device queue-device latency functions detail by-process programs-latency programs-trace programs-diagnose; do
        case $BIOPSY_VM_KERNEL-$view in
        # Too old to attribute I/Os to processes.
        5.10-by-process)
            exited $round.$view 3
            continue
            ;;
        esac
        exited $round.$view 0
        within='.ios >= 2 * $n and .ios <= 2 * $n + 20 and .lost_ios == 0'
        case $BIOPSY_VM_KERNEL-$view in
        # Operations are followed since 5.12.
        5.10-* | *-device | *-trace | *-diagnose) ;;
        *) within+=' and .ops.read.operations >= 2 * $n' ;;
        esac
        expect $round.$view.json "(.latency // .).devices[0] | $within" n $reads
    done
    [ ! -e $round.biolatency.depth-1 ] ||
        awk -v n=$reads '$2 == "->" { sum += $5 } END { exit sum < 2 * n }' $round.biolatency.out ||
        fail "biolatency did not count $reads reads twice: $(cat $round.biolatency.out)"
done
{
    for depth in 1 32; do
        for view in device queue-device latency functions detail by-process interrupts biolatency; do
            for round in 1 2 3; do
                [ -e $round.$view.depth-$depth ] || continue
                with=$(took $round.$view $depth)
                without=$(took $round.none $depth)
                awk "BEGIN { print $with - $without }"
            done | summed depth-$depth $view
        done
    done
    before=0
    for depth in 1 32; do
        for view in latency trace diagnose; do
            # On 7.x a program can be preempted, and its time then includes the view's thread.
            case $BIOPSY_VM_KERNEL-$view in 7.x-trace | 7.x-diagnose) continue ;; esac
            for round in 1 2 3; do
                [ ! -e $round.programs-$view.depth-$depth ] || inside $round.programs-$view $depth $before
            done | summed programs-$depth $view
        done
        before=$depth
    done
    for round in 1 2 3; do runs $round.interrupt.programs irq_entry irq_exit; done | summed interrupt interrupts
    for round in 1 2 3; do runs $round.wait.programs lock_begin lock_end; done | summed wait locks
} >found

# Both methods must agree. Only one of them includes the calls of the programs.
awk '$3 == "latency" { split($2, per, "-"); count[per[1], per[2]] = $4 }
    END { for (depth = 1; depth <= 32; depth += 31) {
        all = count["depth", depth]; programs = count["programs", depth]
        if (programs > all || programs < 0.75 * all) { print "depth " depth ": " all " in all and " programs " in programs"; exit 1 }
    } }' found || fail "$(grep ' latency ' found)"

unchanged "$BIOPSY_VM_TREE/instructions.txt" found 1.03 || fail "vmtest/run --record '' instructions accepts it"
