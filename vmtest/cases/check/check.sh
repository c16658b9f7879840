# Those that follow operations are named where the kernel has no event for them.
follows='["sys_enter", "sys_exit", "ring_complete"]'
followed=ok
[[ $(cat release) != 5.10.* ]] || followed=missing
expect check.json '[.programs[] | select(.name as $n | $follows | index($n))] | length == 3 and all(.state == $state)' \
    follows "$follows" state "\"$followed\""
expect check.json '[.programs[] | select(.name as $n | $follows + ["nvme_sq"] | index($n) | not)]
    | length > 8 and all(.state == "ok")' follows "$follows"
if [ -e module-btf ]; then
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "ok"'
else
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "missing" and (.reason | test("BTF"))'
fi
case $(cat release) in
5.10.*)
    expect check.json '[.views[] | select(.name == "latency" or .name == "diagnose")
        | .state == "degraded" and (.reason | startswith("block layer only, best effort"))] == [true, true]'
    ;;
*) expect check.json '.views[] | select(.name == "latency") | .state == "ok"' ;;
esac
