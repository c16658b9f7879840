trusted latency nullb0
expect latency.json '[.devices[].name] == ["nullb0"]'
device latency nullb0 '.ops.read | .ios == 500 and .request_stages.queue.count == 500'
[[ $(cat release) == 5.10.* ]] || joined latency nullb0 500
# Who names both means one disk.
trusted named nullb0
expect named.json '[.devices[].name] == ["nullb0"]'
device named nullb0 '.ops.read.ios == 100'
