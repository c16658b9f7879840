# Four disks of three drivers at once, one of them at depth 512: each has its own exact count. Each load has
# its own CPU, as in `equal-tags`.
. /guest/lib.sh

null_disk nullb0 completion_nsec=1000000 submit_queues=1 hw_queue_depth=1024
null_disk nullb1 completion_nsec=200000 submit_queues=2 hw_queue_depth=16
scsi_disk ndelay=500000 dev_size_mb=64
echo "$scsi" >disk
for disk in nullb1 nvme0n1 "$scsi"; do
    kernel_ios "$disk" >"$disk.before"
done
cat >load.sh <<END
taskset -c 0 biopsy load --no-drive-check /dev/nullb0 --iodepth 512 --runtime 2s --json -o nullb0.load &
taskset -c 1 biopsy load --no-drive-check /dev/nullb1 --iodepth 4 --runtime 2s --json -o nullb1.load &
taskset -c 2 biopsy load --no-drive-check /dev/nvme0n1 --iodepth 4 --runtime 2s --json -o nvme0n1.load &
taskset -c 3 biopsy load --no-drive-check /dev/$scsi --iodepth 4 --runtime 2s --json -o $scsi.load
wait
END
traced latency nullb0 -d nullb1 -d nvme0n1 -d "$scsi" -- sh load.sh
for disk in nullb1 nvme0n1 "$scsi"; do
    echo $(($(kernel_ios "$disk") - $(cat "$disk.before"))) >"$disk.ios"
done
mv latency.ios nullb0.ios
