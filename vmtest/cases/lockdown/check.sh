grep -q '\[confidentiality\]' level || fail "not locked down: $(cat level cmdline)"
for name in unmounted mounted self-test diagnose; do
    exited $name 3
    [ ! -s $name.out ] || fail "$name measured nothing, and yet: $(cat $name.out)"
    [ "$(wc -l <$name.err)" -eq 1 ] || fail "not one sentence: $(cat $name.err)"
    grep -q 'locked down (confidentiality).*boot without lockdown=confidentiality' $name.err || fail "$(cat $name.err)"
done
for name in unmounted mounted; do
    expect $name.json '.programs | length > 8 and all(.state == "missing" and (.reason | test("locked down")))'
    expect $name.json '[.views[] | select(.name == "latency" or .name == "diagnose") | .state] == ["missing", "missing"]'
    expect $name.json '.rights.lockdown == "confidentiality"'
done
grep -q 'locked down (confidentiality)' check.txt || fail "not said: $(cat check.txt)"
expect devices.json '.devices | length > 0'
expect load.json '.ios > 0'
