# The drive is removed while its interrupts are counted: the run ends by itself, reports it, and keeps its
# result.
# append: case=load-unplug
. /guest/lib.sh

address=$(basename "$(readlink -f /sys/block/nvme0n1/device/device)")
before=$(kernel_ios nvme0n1)
idle=$(links)
biopsy interrupts -d nvme0n1 --for 60s --json -o interrupts.json 2>interrupts.err &
tool=$!
wait_for attached
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=20000 iflag=direct 2>/dev/null &
reader=$!
busy() { [ "$(kernel_ios nvme0n1)" -gt $((before + 500)) ]; }
wait_for busy
echo 1 >"/sys/bus/pci/devices/$address/remove"
status=0
wait "$tool" || status=$?
echo "$status" >interrupts.exit
wait "$reader" || true
echo 1 >/sys/bus/pci/rescan
back() { [ -b /dev/nvme0n1 ]; }
wait_for back
