# Two disks use the same four tags of their queue 0 at the same time: neither may take the other's stamp.
. /guest/lib.sh

null_disk nullb0 completion_nsec=1000000 submit_queues=1 hw_queue_depth=4
null_disk nullb1 completion_nsec=5000000 submit_queues=1 hw_queue_depth=4
before=$(kernel_ios nullb1)
traced latency nullb0 -d nullb1 -- sh -c '
    biopsy load /dev/nullb0 --iodepth 4 --runtime 3s &
    biopsy load /dev/nullb1 --iodepth 4 --runtime 3s
    wait'
echo $(($(kernel_ios nullb1) - before)) >other.ios
