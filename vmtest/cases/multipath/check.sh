path=$(cat path)
trusted reads "$path"
device reads "$path" '.ops.read | .request_stages.queue.count == .ios and .request_stages.complete.count == .ios or ($kernel | startswith("5.10"))' kernel "\"$BIOPSY_VM_KERNEL\""
expect reads.json '[.missing[] | select(.stage == "queue")] == []'
[ "$BIOPSY_VM_KERNEL" = 5.10 ] && exit
device reads "$path" '.ops.read | .operations == 300 and .ios_without_operation == 0'
device reads "$path" '.ops.read | ([.stages[].sum_ns] | add) == .total.sum_ns and (.stages | has("submit"))'
