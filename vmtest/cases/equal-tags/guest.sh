# Two disks use the same four tags of their queue 0 at the same time: neither may use the other's stamps.
# Each load has its own CPU: on 7.x, a task that is preempted inside a program makes the other's event a
# missed one (the case `preempted` counts these), 5 of 6,407 here when they shared CPUs.
# append: time=virtual
. /guest/lib.sh

null_disk nullb0 completion_nsec=1000000 submit_queues=1 hw_queue_depth=4
null_disk nullb1 completion_nsec=5000000 submit_queues=1 hw_queue_depth=4
before=$(kernel_ios nullb1)
traced latency nullb0 -d nullb1 -- sh -c '
    taskset -c 1 biopsy load --no-drive-check /dev/nullb0 --iodepth 4 --runtime 3s &
    taskset -c 2 biopsy load --no-drive-check /dev/nullb1 --iodepth 4 --runtime 3s
    wait'
echo $(($(kernel_ios nullb1) - before)) >other.ios
