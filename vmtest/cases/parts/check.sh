for view in ring waits; do trusted $view nvme0n1; done
case $(cat release) in
5.10.*)
    device ring nvme0n1 '.ops.read | has("parts") | not'
    expect ring.json '[.missing[] | select(.part == "detail") | .reason] == ["no-event"]'
    exit 0
    ;;
esac
device ring nvme0n1 '.ops.read | .operations == $ios + 1' ios "$(jq .ios load.json)"
for view in ring waits; do
    device $view nvme0n1 '.merges == 0 and (.ops.read | ([.request_parts.queue[].sum_ns] | add) == .request_stages.queue.sum_ns)'
    device $view nvme0n1 '.ops.read | ([.parts.complete[].sum_ns] | add) == .stages.complete.sum_ns'
done
device ring nvme0n1 '.ops.read.request_parts.queue | has("sched") | not'
device ring nvme0n1 '.ops.read.parts | .submit.batch.count == $ios and .complete.cqe.count > 0' ios "$(jq .ios load.json)"
device waits nvme0n1 '.ops.read.request_parts.queue | .sched.count == 300 and .alloc.count == 300'
device waits nvme0n1 '.ops.read | .parts.reap.wake.count > 0 and .parts.reap.wake.sum_ns <= .stages.reap.sum_ns'
case $(cat release) in
6.1.*) expect ring.json '[.missing[] | select(.part == "endio") | .included_in] == ["cqe"]' ;;
esac
