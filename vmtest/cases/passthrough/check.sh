views=latency
[ ! -e told.json ] || views='latency told'
for view in $views; do
    exited "$view" 0
    expect "$view.json" '.lost.ios == 0 and .lost.events == 0'
    device "$view" nvme0n1 '.ops | keys == ["passthrough","read"] and .passthrough.ios == 150 and .read.ios == 50'
    device "$view" nvme0n1 '.ios == 200 and .ops.passthrough.request_stages.device.count == 150'
done
expect latency.json '.kernel_classes.none == ["passthrough"]'
counted_too() { # VIEW
    [ "$(cat "$1.ios")" -eq 200 ] || fail "the kernel counted $(cat "$1.ios")"
    device "$1" nvme0n1 '.kernel_ios_min == null and .kernel_check == null'
}
if [[ $(cat release) == 5.10.* ]]; then
    counted_too latency
else
    [ "$(cat latency.ios)" -eq 50 ] || fail "the kernel counted $(cat latency.ios)"
    device latency nvme0n1 'kernel == [50, 50] and .kernel_check == "ok"'
fi
[[ $(cat release) != 7.* ]] || counted_too told
