# The drive is removed during a run: one sentence, exit status 4, and the result is kept. In a separate boot: late
# in a long one it hung in a guest of 7.2. One CPU: with four, QEMU failed in two of ten boots with an assertion
# (iotlb_to_section), probably since one CPU read from the drive while another removed it.
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

# The drive comes back for the next cases.
echo 1 >/sys/bus/pci/rescan
back() { [ -b /dev/nvme0n1 ]; }
wait_for back
