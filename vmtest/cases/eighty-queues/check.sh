trusted latency nullb0
[ "$(wc -l <queues)" -eq 8 ] || fail "not every CPU has a queue: $(cat queues)"
while read -r disk cpu queue; do
    count=200
    [ "$disk" = nullb0 ] || count=500
    device latency "$disk" '[.queues[] | select(.queue == $queue) | .ios] == [$ios]' \
        queue "$queue" ios $((count + cpu))
done <queues
device latency nullb0 '[.queues[].ios] | add == 944'
device latency nullb1 '[.queues[].ios] | add == 2144'
