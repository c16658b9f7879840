disk=$(cat disk)
for view in plain answered late busy; do
    trusted "$view" "$disk"
done
given_back() { grep -c block_rq_requeue "$1.trace"; }
answered=$(given_back answered) late=$(given_back late) busy=$(given_back busy)
device plain "$disk" '.retries == 0 and .requeues == 0 and .ops.read.ios == 100'
# Above 4 ms are the commands that the disk did twice (2 ms each), and those delayed
# by a busy CPU.
above='[.buckets[] | select(.[0] >= $ns) | .[2]] | add // 0'
[ "$answered" -ge 10 ] || fail "only $answered retries"
device answered "$disk" '.retries == $n and .requeues == 0 and .ops.read.ios == 200' n "$answered"
device answered "$disk" ".ops.read.request_stages | (.device | $above) >= \$n and (.queue | $above) < \$n / 2" ns 3.9e6 n "$answered"
[ "$late" -ge 1 ] || fail "no command was late"
device late "$disk" '.retries == $n and .requeues == 0 and .ops.read.ios == 30' n "$late"
device late "$disk" ".ops.read.request_stages | (.device | $above) == \$n and (.queue | $above) == 0" ns 9e8 n "$late"
[ "$busy" -ge 10 ] || fail "only $busy times busy"
device busy "$disk" '.requeues == $n and .retries == 0 and .ops.read.ios == 200' n "$busy"
device busy "$disk" '.ops.read.request_stages.device | .min_ns >= 2e6 and .p50_ns <= 2.4e6'
[[ $(cat release) != 5.10.* ]] || exit 0
for view in answered late; do
    device "$view" "$disk" '.retries as $n | .ops.read.request_parts | .device.retry.count == $n and (.queue | has("requeue") | not)'
done
# The driver may refuse an I/O several times before it accepts it.
refused=$(sed -n 's/.* block_rq_requeue: .* \([0-9]*\) + .*/\1/p' busy.trace | sort -u | wc -l)
device busy "$disk" '.ops.read.request_parts | .queue.requeue.count == $n and (has("device") | not)' n "$refused"
