# System calls followed at their functions, and by the events of all system calls: the same loads must have the same
# counts and the same times. The loads run alone on the only CPU, so no instructions of other tasks are included.
# smp: 1
# append: time=virtual tsc=reliable
# long: yes
. /guest/lib.sh

null_disk nullb0 irqmode=0 submit_queues=1
# The kernel tests its ciphers for a second or two after the boot.
wait_for sh -c '! grep -qsx cryptomgr_test /proc/[0-9]*/comm'
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
# both NAME COMMAND...: runs the command in both modes, and lists the attached programs.
both() {
    name=$1
    shift
    for way in functions events; do
        option=
        [ $way = events ] || option=--functions
        # shellcheck disable=SC2086 # one word or none
        traced "$name.$way" nullb0 --no-cost $option -- \
            sh -c 'bpftool link show >"$0"; exec chrt -f 1 "$@"' "$name.$way.links" "$@"
    done
}
both ring biopsy load --no-drive-check /dev/nullb0 --number_ios 4000 --iodepth 1
both pread biopsy load --no-drive-check /dev/nullb0 --number_ios 4000 --ioengine psync
both libaio biopsy load --no-drive-check /dev/nullb0 --number_ios 4000 --ioengine libaio --iodepth 8
both read dd if=/dev/nullb0 of=/dev/null bs=4096 count=4000 iflag=direct
both fsync issue write-fsync /dev/nullb0 2000
