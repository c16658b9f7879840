accounted latency nvme0n1
# The kernel has no event to follow operations.
case $(cat release) in
5.10.*)
    expect latency.json 'has("operations_duty") | not'
    exit 0
    ;;
esac
expect latency.json '.operations_duty > 0.03 and .operations_duty < 0.25'
# Only the load reads, so each I/O that began while all operations were followed belongs to one. There are few
# exceptions: the generator's first check of the drive, and I/Os in flight when a slice began.
device latency nvme0n1 '.ops.read | .operations > 100 and .ios_unclassified > 3000 and .ios_without_operation <= 8
    and (.ios - .ios_unclassified - .ios_without_operation - .operations | . >= 0 and . <= 8)'
device latency nvme0n1 '.ops.read | [.stages[].count] | all(. >= $of - 4)' of \
    "$(jq '.devices[] | select(.name == "nvme0n1").ops.read.operations' latency.json)"
device latency nvme0n1 '.negative == 0'
