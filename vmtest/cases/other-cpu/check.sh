trusted latency nvme0n1
[ ! -s latency.err ] || fail "something odd was said: $(cat latency.err)"
device latency nvme0n1 '.ios + .merges == $ios + 1 and .negative == 0 and (.queues | length == 1)' ios "$(jq .ios load.json)"
# Three of four jobs run on other CPUs than the interrupt. Several completions may be sent
# together.
[ "$(cat moves)" -gt $(($(cat latency.ios) / 4)) ] || fail "$(cat moves) moves: nothing went to other CPUs"
if [[ $(cat release) != 5.10.* ]]; then
    joined latency nvme0n1 $(($(jq .ios load.json) + 1))
    device latency nvme0n1 '.ios as $n | .ops.read.request_stages.complete | .count == $n and .sum_ns > 0'
fi
