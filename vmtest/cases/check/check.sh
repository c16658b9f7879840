expect check.json '[.programs[] | select(.name != "nvme_sq")] | length > 8 and all(.state == "ok")'
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
