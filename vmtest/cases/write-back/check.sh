trusted mixed nvme0n1
case $(cat release) in
5.10.*)
    # Operations are not followed, so no I/O can be without one.
    device mixed nvme0n1 '.ops.write | (has("ios_without_operation") or has("request_stages_without_operation")) | not'
    exit 0
    ;;
esac
device mixed nvme0n1 '.ops.write | .ios > 300 and (.ios - 300 - .ios_without_operation | fabs) <= $view.lost.probes.latency.missed'
device mixed nvme0n1 '.ops.write | .ios_without_operation as $n | .request_stages_without_operation
    | keys == ["complete","device","queue"] and all(.[]; .count == $n)'
device mixed nvme0n1 '.ops.write as $w | $view.lost.probes.latency.missed > 0 or all("queue", "device", "complete";
    $w.request_stages[.].sum_ns == $w.stages[.].sum_ns + $w.request_stages_without_operation[.].sum_ns)'
