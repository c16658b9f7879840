exited latency 3
[ ! -s latency.out ] || fail "nothing was measured, and yet: $(cat latency.out)"
[ "$(wc -l <latency.err)" -eq 1 ] || fail "not one sentence: $(cat latency.err)"
grep -q 'no BTF.*CONFIG_DEBUG_INFO_BTF.*--btf.*pahole' latency.err || fail "$(cat latency.err)"
expect check.json '.programs | length > 8 and all(.state == "missing")'
grep -q 'BTF absent' check.txt || fail "not said: $(cat check.txt)"
expect check.json '.btf == false and ([.views[] | select(.name == "latency" or .name == "diagnose") | .state]
    == ["missing", "missing"]) and (.views[] | select(.name == "latency") | .remedy | test("--btf"))'
expect devices.json '.devices | length > 0'
for view in file ring split; do trusted $view nvme0n1; done
expect file.json '[.missing[] | select(.stage == "submit" or .stage == "reap") | .reason] == ["btf-file", "btf-file"]'
stages='["complete","device","queue"]'
# Its driver is a module; its event is attached as a raw tracepoint, like all
# others here.
device file nvme0n1 '.ops.read | .ios == 300 and all(.request_stages[]; .count == 300) and (.request_stages | keys == $s)' s "$stages"
device split nvme0n1 '.ops.read.ios == 160 and .splits == 140'
exited lines 0
jq -se '[.[] | select(.op == "read")] | length == 300 and all(.[]; .owner.comm == "dd" and (.request_stages.device > 0))' \
    lines.json >/dev/null || fail "the lines: $(head -n 1 lines.json)"
exited wrong 2
grep -q 'not the BTF of a kernel' wrong.err || fail "$(cat wrong.err)"
