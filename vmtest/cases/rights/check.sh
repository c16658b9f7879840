trusted latency nvme0n1
stages='["device","queue"]'
if [ -e module-btf ]; then
    stages='["complete","device","queue"]'
    expect latency.json '.missing | all(.stage != "complete")'
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "ok" and (.reason | test("raw event"))'
fi
device latency nvme0n1 '.ops.read.request_stages | keys == $stages' stages "$stages"
device latency nvme0n1 '.ios as $ios | [.ops.read.request_stages[].count] | unique == [$ios]'
device latency nvme0n1 '([.ops.read.request_stages[].sum_ns] | add) <= $load.latency.sum_ns' load "$(cat load.json)"
if [[ $(cat release) != 5.10.* ]]; then
    device latency nvme0n1 '.ops.read | .stages | keys == ["complete","device","queue","reap","submit"]'
    device latency nvme0n1 '.ops.read | .operations == $load.ios + 1 and .not_covered == {}' load "$(cat load.json)"
fi
expect latency.json '.cost.ns_per_io == null and ([.missing[] | select(.part == "cost") | .why | test("CAP_SYS_ADMIN")] == [true])'
expect check.json '.views[] | select(.name == "latency") | .state != "missing"'
for one in bpf perfmon; do
    exited $one 3
    [ ! -s $one.out ] || fail "nothing was measured, and yet: $(cat $one.out)"
    grep -q 'CAP_BPF and CAP_PERFMON' $one.err || fail "$(cat $one.err)"
done
