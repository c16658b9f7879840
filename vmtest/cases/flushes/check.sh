grep -q 'write back' cache || fail "the drive has no cache: $(cat cache)"
for view in fsync dsync; do
    trusted "$view" nvme0n1
done
device fsync nvme0n1 '.ops | keys == ["empty_flush","flush","write"]
    and .write.ios == 200 and .flush.ios == 200 and .empty_flush.ios == 200 and .write.bytes == 200 * 4096'
device fsync nvme0n1 '.kernel_ios.flush.min == 200 and .kernel_ios.write.min == 400'
device fsync nvme0n1 '.ops.flush.request_stages.device.count == 200 and (.ops.empty_flush.request_stages == {})'
device dsync nvme0n1 '.ops | keys == ["empty_flush","flush","fua"] and [.[].ios] == [100, 100, 100]'
device dsync nvme0n1 '.kernel_ios.flush.min == 100 and .kernel_ios.write.min == 200'
