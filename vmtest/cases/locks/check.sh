exited locks 0
expect locks.json '.command_status == 0 and .contentions > 50 and .wait_ns > 0
    and ([.locks[].contentions] | add) - .contentions <= 8 and all(.locks[]; .contentions == .wait.count)
    and ([.by_cpu[].contentions] | add) == .contentions'
# Waiting threads, with user frames below those of the kernel. The file has all of the wait
# time.
exited waits 0
expect waits.json '.what == "lock-wait" and .total == $sum' sum "$(awk '{ n += $NF } END { printf "%.0f", n }' waits.folded)"
grep -q '^[^;]*;\(dd\|sh\|busybox\|timeout\);[^;]*[^];]\(;.*\)\?;[^;]*_\[k\][; ]' waits.folded ||
    fail "nobody's frames of user mode: $(cut -c1-200 waits.folded)"
# The probes alone: spinlocks, including the first waiter.
expect alone.json '.seen_by == "slow-path" and .contentions > 50 and (.begins.by_kind | keys) == ["spin"]
    and .slow_path == null and all(.locks[]; .kind == "spin")
    and any(.missing[]; .reason == "no-event" and (.part | startswith("mutex")))'
view='.views[] | select(.name == "locks")'
case $(cat release) in
5.10.*)
    expect locks.json '.seen_by == "slow-path"'
    expect check.json "$view | .state == \"degraded\" and (.reason | contains(\"only spinlock waits\"))"
    ;;
*)
    expect check.json "$view | .state == \"ok\""
    hits() { sed -n 's/.*Hits: //p' "$1"; }
    inside=$(($(hits to) - $(hits from))) around=$(($(hits after) - $(hits before)))
    expect locks.json '.seen_by == "events" and $inside > 0 and $inside <= .begins.total + .lost.events
        and .begins.total <= $around' inside "$inside" around "$around"
    # Waiters on the pending bit have no event.
    expect locks.json '.slow_path | .slow_path_calls >= .events and .slow_path_calls > 50
        and .pending_bit_waiters == .slow_path_calls - .events'
    expect locks.json '([.locks[] | select(.recognised_by == "structure")] | length) > 0
        and all(.missing[]; .part != "pending-bit waiters")'
    ;;
esac
# The holder of a lock that other threads sleep on, and for how long: since 7.2.
case $(cat release) in
7.*)
    expect locks.json '[.locks[] | select(.name == "mutex of a pipe" and .holder.comm == "issue")] | length == 1
        and (.[0].holder | .releases >= 12 and .holds >= 11 and .max_hold_ns >= 80e6 and .max_hold_ns < 400e6
            and .hold_ns / .holds > 20e6)'
    expect locks.json 'all(.missing[]; .part != "holder")'
    ;;
*)
    expect locks.json 'all(.locks[]; has("holder") | not) and any(.missing[]; .part == "holder" and .reason == "no-event")'
    ;;
esac
