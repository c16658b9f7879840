# The cost of each view in instructions, compared with `biolatency` of libbpf-tools. In virtual time an instruction
# takes 2 ns, whatever the host does. The same 20,000 reads run without a view and with each one, on the only CPU and on
# a disk that completes within the submission. The CPU is never idle, so what a view adds to an I/O shows in the
# duration of the reads. Unlike the kernel's program statistics, this includes calling the programs: events,
# trampolines, and the slow path of system calls. The statistics are the cross-check, and the figure for views whose own
# threads work meanwhile. It takes minutes.
# smp: 1
# append: time=virtual tsc=reliable queues=1
# timeout: 900
# long: yes
. /guest/lib.sh

null_disk nullb0 irqmode=0 submit_queues=1
# One I/O per read, and no scheduler.
echo none >/sys/block/nullb0/queue/scheduler
echo 2 >/sys/block/nullb0/queue/nomerges
# The kernel tests its ciphers for a second or two after the boot.
wait_for sh -c '! grep -qsx cryptomgr_test /proc/[0-9]*/comm'

# loads NAME: one read at a time, then 32. Also the run time of the programs, if the statistics are enabled.
cat >/tmp/loads <<'END'
on=$(cat /proc/sys/kernel/bpf_stats_enabled)
[ "$on" = 0 ] || bpftool prog show -j >"$1.depth-0.programs"
for depth in 1 32; do
    biopsy load --no-drive-check /dev/nullb0 --number_ios 20000 --iodepth $depth --json -o "$1.depth-$depth"
    [ "$on" = 0 ] || bpftool prog show -j >"$1.depth-$depth.programs"
done
END
# view NAME VERB OPTION...: runs the loads with a view.
view() {
    name=$1 verb=$2 status=0
    shift 2
    biopsy "$verb" -d nullb0 --no-cost --max-loss 100 --json "$@" -- sh -eu /tmp/loads "$name" >"$name.json" 2>"$name.err" ||
        status=$?
    echo $status >"$name.exit"
}
attached() { bpftool prog show | grep -q 'name block_rq_comp'; }

for round in 1 2 3; do
    sh -eu /tmp/loads $round.none
    view $round.device latency --stages device
    view $round.queue-device latency --stages queue,device
    view $round.latency latency
    view $round.functions latency --functions
    view $round.detail latency --detail
    view $round.by-process latency --by process
    view $round.interrupts interrupts
    biolatency 1000 1 >$round.biolatency.out 2>$round.biolatency.err &
    peer=$!
    # Until it is attached, or has exited because this kernel lacks something.
    for _ in $(seq 100); do
        if attached || ! kill -0 $peer 2>/dev/null; then break; fi
        usleep 100000
    done
    if attached; then
        sh -eu /tmp/loads $round.biolatency
        kill -INT $peer
    fi
    wait $peer || true
done

echo 1 >/proc/sys/kernel/bpf_stats_enabled
for round in 1 2 3; do
    view $round.programs-latency latency
    view $round.programs-trace trace -o /tmp/trace.json
    tail -n 1 /tmp/trace.json >$round.programs-trace.json
    view $round.programs-diagnose diagnose -o /tmp/report.html
done
no_null_disks

# Interrupts of a drive, at any time, and a mutex that is held for 5 ms while another thread waits for it.
nvme_driver
null_disk nullb0 completion_nsec=5000000
for round in 1 2 3; do
    biopsy interrupts -d nvme0n1 --no-cost --max-loss 100 --json -o $round.interrupt.json -- \
        sh -c "biopsy load --no-drive-check /dev/nvme0n1 --number_ios 10000 --iodepth 1 >$round.interrupt.out
            bpftool prog show -j >$round.interrupt.programs"
    biopsy locks --no-cost --max-cost 0 --no-spin --max-loss 100 --json -o $round.wait.json -- \
        sh -c "issue held /dev/nullb0 500; bpftool prog show -j >$round.wait.programs"
done
