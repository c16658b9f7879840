expect check.json '[.programs[] | select(.name != "nvme_sq")] | length > 8 and all(.state == "ok")'
if [ -e module-btf ]; then
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "ok"'
else
    expect check.json '.programs[] | select(.name == "nvme_sq") | .state == "missing" and (.reason | test("BTF"))'
fi
case $(cat release) in
5.10.*)
    expect check.json '.views[] | select(.name == "latency") | .state == "degraded"'
    grep -q '^  latency  *degraded  block layer only, best effort' check.txt || fail "not said: $(cat check.txt)"
    ;;
*) expect check.json '.views[] | select(.name == "latency") | .state == "ok"' ;;
esac
