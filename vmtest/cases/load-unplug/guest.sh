# The drive is removed while the load generator writes to it: the run ends and keeps its result. In a
# separate boot, like the case `vanish`.
# append: case=load-unplug
. /guest/lib.sh

address=$(basename "$(readlink -f /sys/block/nvme0n1/device/device)")
biopsy load /dev/nvme0n1 --rw randrw --iodepth 8 --runtime 20s --write --destroy-data-on nvme0n1 \
    --json -o load.json 2>load.err &
load=$!
# How long the write protection inspects the machine differs by kernel.
busy() {
    read -r _ _ _ _ writes _ </sys/block/nvme0n1/stat
    [ "$writes" -gt 500 ]
}
wait_for busy
sleep 2
echo 1 >"/sys/bus/pci/devices/$address/remove"
status=0
wait "$load" || status=$?
echo "$status" >load.exit

# The drive comes back, and can be written again.
echo 1 >/sys/bus/pci/rescan
back() { [ -b /dev/nvme0n1 ]; }
wait_for back
status=0
biopsy load /dev/nvme0n1 --rw randwrite --runtime 1s --write --destroy-data-on nvme0n1 --json -o again.json \
    2>again.err || status=$?
echo "$status" >again.exit
