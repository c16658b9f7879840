trusted latency nvme0n1
# Without BTF of modules (5.10) the driver's events have no types: complete is reported as missing with a reason.
if [ -e module-btf ]; then
    stages='["complete","device","queue"]'
    expect latency.json '.missing | all(.stage != "complete")'
else
    stages='["device","queue"]'
    expect latency.json '[.missing[] | select(.stage == "complete") | [.device, .reason, .included_in]]
        == [["nvme0n1", "no-btf", "device"]]'
fi
device latency nvme0n1 '.ops.read.request_stages | keys == $stages' stages "$stages"
device latency nvme0n1 '.ios as $ios | [.ops.read.request_stages[].count] | unique == [$ios]'
device latency nvme0n1 '.ios == ([.queues[].ios] | add)'
device latency nvme0n1 'all(.queues[]; .qid == .queue + 1)'
device latency nvme0n1 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
# QEMU's drive answers the commands: its maximum transfer equals the driver's limit, and its namespace of 128 MiB is
# fully in use.
expect devices.json '.devices[0] | .nvme.max_transfer_bytes == .max_hw_request_bytes and .nvme.namespace
    == {size_bytes: .size_bytes, capacity_bytes: .size_bytes, used_bytes: .size_bytes}'
expect devices.json '.missing == [] and (.devices[0].nvme | [.coalescing, .metadata_bytes, .health.temperature_celsius,
    .health.critical_warning, .health.throttle_transitions]) == [{completions: 1, time_us: 0}, 0, 50, 0, [null, null]]'
