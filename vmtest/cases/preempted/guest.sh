# Two loads share a CPU. On 7.x the kernel may preempt a task inside a program (tracepoints run under
# SRCU-fast instead of disabled preemption, a46023d5616e), and it does not run a program inside itself. The
# other task's events on that CPU are then missed. Each skipped run must be counted, and every I/O must be
# accounted for.
. /guest/lib.sh

null_disk nullb0 completion_nsec=100000 submit_queues=1 hw_queue_depth=64
null_disk nullb1 completion_nsec=100000 submit_queues=1 hw_queue_depth=64
before=$(kernel_ios nullb1)
traced latency nullb0 -d nullb1 -- taskset -c 1 sh -c '
    biopsy load --no-drive-check /dev/nullb0 --iodepth 2 --runtime 2s &
    biopsy load --no-drive-check /dev/nullb1 --iodepth 2 --runtime 2s
    wait'
echo $(($(kernel_ios nullb1) - before)) >other.ios
uname -r >release
