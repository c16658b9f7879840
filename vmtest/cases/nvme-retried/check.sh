# From the kernel's own trace: completions with an error, and requests that the driver returned.
refused() { grep -c 'nvme_complete_rq.* status=0x0*[1-9a-f]' "$1.trace" || true; }
given_back() { grep -c block_rq_requeue "$1.trace" || true; }
# Reads that were issued more than once, and for each the time from its first to its last issue.
tries() {
    sed -n 's/.* \([0-9.]*\): block_rq_issue: .* \([0-9]*\) + [0-9]* .*/\1 \2/p' "$1.trace" |
        awk '!($2 in first) { first[$2] = $1 }
            { if (last[$2]) again[$2] = 1; last[$2] = $1 }
            END { for (s in again) { n++; sum += last[s] - first[s] } printf "%d %.0f\n", n, sum * 1e9 }'
}
retried() { # VIEW RETRIES READS I/OS
    local n=$2 reads ns
    trusted "$1" nvme0n1
    [ "$(refused "$1") $(given_back "$1")" = "$n $n" ] ||
        fail "$1: the drive refused $(refused "$1"), the driver gave back $(given_back "$1"), not $n"
    read -r reads ns < <(tries "$1")
    [ "$reads" -eq "$3" ] || fail "$1: $reads reads were issued again, not $3"
    device "$1" nvme0n1 '.retries == $n and .requeues == 0 and .ops.read.ios == $ios' n "$n" ios "$4"
    [[ $(cat release) != 5.10.* ]] || return 0
    joined "$1" nvme0n1 "$4"
    device "$1" nvme0n1 '.ops.read.request_parts.queue | has("requeue") | not'
    # Two programs at one event: under emulation the first run of a program takes milliseconds.
    device "$1" nvme0n1 '.ops.read.request_parts.device.retry | (.count // 0) == $n and
        ((.sum_ns // 0) - $ns | fabs) <= 1e7 + $n * 1e6' n "$reads" ns "$ns"
}
retried plain 0 0 50
retried failed 30 20 200
retried late 1 1 2
retried reset 1 1 2

# The waits of these reads are in the device stage and not in queue.
device failed nvme0n1 '.ops.read.request_stages | .queue.sum_ns < .device.sum_ns / 10'
waited='[.buckets[] | select(.[0] >= $ns) | .[2]] | add // 0'
grep -q 'timeout, aborting' late.dmesg || fail "the driver aborted nothing: $(cat late.dmesg)"
device late nvme0n1 ".ops.read.request_stages | (.device | $waited) == 1 and (.queue | $waited) == 0" ns 2.5e9
device reset nvme0n1 ".ops.read.request_stages | (.device | $waited) == 1 and (.queue | $waited) == 0" ns 0.7e9
