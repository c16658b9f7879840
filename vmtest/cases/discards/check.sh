for view in discards zeroes; do
    trusted "$view" nvme0n1
done
device discards nvme0n1 '.ops | keys == ["discard"] and .discard.ios == 100 and .discard.bytes == 100 * 65536'
device discards nvme0n1 '.kernel_ios.discard.min == 100 and .kernel_ios.write.max == 0'
device zeroes nvme0n1 '.ops | keys == ["write_zeroes"] and .write_zeroes.ios == 50'
device zeroes nvme0n1 '.kernel_ios.write.min == 50'
[[ $(cat release) != 5.10.* ]] || exit 0

# The ioctl is the operation.
joined discards nvme0n1 100 discard
joined zeroes nvme0n1 50 write_zeroes
