path=$(cat path)
if [ "$BIOPSY_VM_KERNEL" = 5.10 ]; then
    exited reads 3
    grep -q 'error: this kernel does not report the path' reads.err || fail "$(cat reads.err)"
    exit
fi
trusted reads "$path"
device reads "$path" '.ops.read | .request_stages.queue.count == .ios and .request_stages.complete.count == .ios'
expect reads.json '[.missing[] | select(.stage == "queue")] == []'
device reads "$path" '.ops.read | .operations == 300 and .ios_without_operation == 0'
device reads "$path" '.ops.read | ([.stages[].sum_ns] | add) == .total.sum_ns and (.stages | has("submit"))'
