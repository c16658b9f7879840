trusted latency nvme0n1
device latency nvme0n1 '.ops.read.request_stages | has("queue") and has("device") and has("complete")'
device latency nvme0n1 '.ios as $ios | [.ops.read.request_stages[].count] | unique == [$ios]'
device latency nvme0n1 '.ios == ([.queues[].ios] | add)'
device latency nvme0n1 'all(.queues[]; .qid == .queue + 1)'
device latency nvme0n1 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
