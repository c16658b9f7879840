# The drive is pulled in mid-run: one sentence, exit status 4, and what was measured is kept.
# A boot of its own: late in a long one it hung in a guest of 7.2.
# One CPU: in two of ten boots with four QEMU ended in an assertion of its own (iotlb_to_section), as of a CPU that
# reads of the drive while another one takes it away.
# smp: 1
# append: case=vanish
. /guest/lib.sh

address=$(basename "$(readlink -f /sys/block/nvme0n1/device/device)")
biopsy load --no-drive-check /dev/nvme0n1 --iodepth 4 --runtime 60s --json -o load.json 2>load.err &
load=$!
start_latency -d nvme0n1 --for 60s --json -o latency.json 2>latency.err
# How long the generator prepares differs by kernel.
busy() {
    read -r reads _ </sys/block/nvme0n1/stat
    [ "$reads" -gt 500 ]
}
wait_for busy
sleep 2
echo 1 >"/sys/bus/pci/devices/$address/remove"
status=0
wait "$tool" || status=$?
echo "$status" >latency.exit
status=0
wait "$load" || status=$?
echo "$status" >load.exit

# The drive comes back for the cases behind this one.
echo 1 >/sys/bus/pci/rescan
back() { [ -b /dev/nvme0n1 ]; }
wait_for back
