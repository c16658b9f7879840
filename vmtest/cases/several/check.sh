# Whether the losses are too large to trust depends on the machine's speed (case `preempted`).
[ "$(cat latency.exit)" -eq 0 ] || exited latency 4
expect latency.json '.lost.events == 0 and (.devices | length == 4)'
for disk in nullb0 nullb1 nvme0n1 "$(cat disk)"; do
    device latency "$disk" '.ios + .lost_ios == $ios and kernel == [$ios, $ios] and $ios + .merges == $load + 1' \
        ios "$(cat "$disk.ios")" load "$(jq .ios "$disk.load")"
done
# One disk's timer may interrupt another's softirq inside a program, which the kernel then skips: such runs are
# counted, and are the only losses.
expect latency.json '.lost.ios <= .lost.probes.latency.missed'
device latency nullb0 '.ops.read.request_stages.device.min_ns >= 1e6'
