case $(cat release) in 5.10.*) exited latency 3; exit 0 ;; esac
upper=$(cat name)
for view in latency ring; do
    trusted $view "$upper"
    # The delay ends on a jiffy of 4 ms; two more jiffies are tolerated.
    device $view "$upper" '.ops.read | .bio.min_ns >= 96e6 and .layer.mean_ns >= 96e6 and .layer.mean_ns <= 112e6'
    device $view nullb0 '.ops.read | ([.request_stages[].sum_ns] | add) / .ios | . >= 2e6 and . < 8e6'
    device $view "$upper" '.ops.read | ([.stages[].sum_ns] | add) == .total.sum_ns and .ios_without_operation == 0'
done
device latency "$upper" '.ops.read.operations == 20'
