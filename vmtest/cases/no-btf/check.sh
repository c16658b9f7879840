exited latency 3
[ ! -s latency.out ] || fail "nothing was measured, and yet: $(cat latency.out)"
[ "$(wc -l <latency.err)" -eq 1 ] || fail "not one sentence: $(cat latency.err)"
grep -q 'no BTF.*no file can stand in.*CONFIG_DEBUG_INFO_BTF' latency.err || fail "$(cat latency.err)"
expect check.json '.programs | length > 8 and all(.state == "missing")'
grep -q 'BTF absent' check.txt || fail "not said: $(cat check.txt)"
expect check.json '.btf == false and ([.views[] | select(.name == "latency" or .name == "diagnose") | .state]
    == ["missing", "missing"]) and (.views[] | select(.name == "latency") | .reason | test("no file can stand in"))'
expect devices.json '.devices | length > 0'
