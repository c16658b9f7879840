trusted latency nullb0
for disk in nullb0 nullb1; do
    device latency "$disk" '[.queues[].ios] | add == $ios' ios $((4 * 200 + 144))
    for cpu in 0 1 64 79; do
        queue=$(sed -nE "s#^/sys/block/$disk/mq/([0-9]+)/cpu_list:(.*, )?$cpu(,.*)?\$#\1#p" queues)
        [ -n "$queue" ] || fail "no queue of $disk serves CPU $cpu"
        device latency "$disk" '[.queues[] | select(.queue == $queue) | .ios] == [$ios]' \
            queue "$queue" ios $((200 + cpu))
    done
done
