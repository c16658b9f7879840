grep -q 'write back' cache || fail "the drive has no cache: $(cat cache)"
for view in fsync dsync alone; do
    trusted "$view" nvme0n1
done
trusted behind loop0
device fsync nvme0n1 '.ops | keys == ["empty_flush","flush","write"]
    and .write.ios == 200 and .flush.ios == 200 and .empty_flush.ios == 200 and .write.bytes == 200 * 4096'
device fsync nvme0n1 '.kernel_ios.flush.min == 200 and .kernel_ios.write.min == 400'
device fsync nvme0n1 '.ops.flush.request_stages.device.count == 200 and (.ops.empty_flush.request_stages == {})'
device dsync nvme0n1 '.ops | keys == ["empty_flush","flush","fua"] and [.[].ios] == [100, 100, 100]'
device dsync nvme0n1 '.kernel_ios.flush.min == 100 and .kernel_ios.write.min == 200'
device alone nvme0n1 '.ops | keys == ["empty_flush","flush"] and [.[].ios] == [100, 100]'
# A write, the flush after it that the block layer issues for FUA, and the flush of the block device's fsync.
device behind loop0 '.ops | .write.ios == 50 and .flush.ios == 100 and .empty_flush.ios == 50'
expect behind.json '[.missing[] | select(.stage == "complete" and .part == "flush") | .why | split(" ")[0]] == ["50"]'
for view in fsync dsync alone; do
    expect "$view.json" '[.missing[] | select(.part == "flush")] == []'
done
[[ $(cat release) != 5.10.* ]] || exit 0

joined fsync nvme0n1 200 write
joined fsync nvme0n1 200 empty_flush
# The flush after a write completes the operation's stages, and the write determines its class.
joined dsync nvme0n1 100 fua
joined alone nvme0n1 100 empty_flush
device dsync nvme0n1 '.operations == 100 and .ops.fua.request_stages.device.count == 100'
# One at a time: each fsync has one flush, whose stages are the operation's.
for of in fsync:empty_flush dsync:fua alone:empty_flush; do
    device "${of%:*}" nvme0n1 ".ops | .${of#*:}.stages.device.sum_ns == .flush.request_stages.device.sum_ns"
    device "${of%:*}" nvme0n1 ".ops.${of#*:}"'.stages | keys == ["complete","device","queue","reap","submit"]'
done
# The time in the kernel is within the time that the caller measured.
device alone nvme0n1 '.ops.empty_flush.total.sum_ns < $sum and .ops.empty_flush.total.sum_ns > $sum / 2' \
    sum "$(cat alone.ns)"
joined behind loop0 50 write
