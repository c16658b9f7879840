# `biopsy compare` restores the settings after each way to end, including those that the kernel resets along with
# them. If the disk is removed meanwhile, nothing is printed and nothing is left behind.
. /guest/lib.sh

queue=/sys/block/nvme0n1/queue
echo mq-deadline >$queue/scheduler
echo 100 >$queue/nr_requests
echo 7 >$queue/iosched/fifo_batch
echo 64 >$queue/read_ahead_kb
settings() {
    for file in scheduler nr_requests iosched/fifo_batch read_ahead_kb max_sectors_kb; do
        echo "$file $(cat $queue/$file)"
    done
}
settings >before
# Run in the background: exec replaces the subshell, so $! is biopsy.
compare() {
    exec biopsy compare -d nvme0n1 --vary scheduler=none,mq-deadline --vary read_ahead=0,256 --vary max_sectors=64,128 \
        --rounds 100 --json -- sleep 0.2
}
running() { ! settings | cmp -s - before; }
idle() { [ ! -e /run/biopsy/compare-nvme0n1.lock ]; }
status=0
biopsy compare --vary scheduler=none,mq-deadline --rounds 4 --json \
    -- load /dev/nvme0n1 --no-drive-check --runtime 100ms >end.json 2>end.err || status=$?
echo $status >end.exit
settings >end.after
# A shell's background commands ignore SIGINT: tests outside of the VM cover it.
for signal in TERM HUP KILL; do
    status=0
    compare >$signal.json 2>$signal.err &
    tool=$!
    wait_for running
    # Each value is tried once before the rounds begin.
    sleep 1
    kill -$signal $tool
    wait $tool || status=$?
    wait_for idle
    echo $status >$signal.exit
    settings >$signal.after
done
# Kill the process that restores settings as well: the next start restores them.
compare >both.json 2>both.err &
tool=$!
wait_for running
sleep 1
watcher=$(grep -lsa '[s]etting-watcher' /proc/[0-9]*/cmdline | cut -d/ -f3)
kill -KILL $tool "$watcher"
wait $tool || true
settings >both.left
biopsy compare --restore 2>both.restore
settings >both.after
ls /run/biopsy >left

# Remove the disk: its settings are removed with it.
null_disk nullb0 irqmode=0
biopsy compare --vary nomerges=0,2 --rounds 100 -d nullb0 -- sleep 1 >gone.out 2>gone.err &
tool=$!
changed() { [ -e /run/biopsy/compare-nullb0.json ]; }
wait_for changed
sleep 1
no_null_disks
status=0
wait $tool || status=$?
echo $status >gone.exit
ls /run/biopsy >gone.left

# Limits of a cgroup: 200 reads per second compared with no limit. Afterwards there is no limit again.
echo '+io +cpu +memory' >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/slow
limits() { (cd /sys/fs/cgroup/slow && head io.max cpu.max memory.high); }
null_disk nullb0 irqmode=0
limits >limits.before
# exec replaces the subshell, which has entered the cgroup.
in_group() {
    exec sh -c 'echo $$ >/sys/fs/cgroup/slow/cgroup.procs; exec "$0" "$@"' biopsy compare "$@" --json \
        -- load /dev/nullb0 --no-drive-check --runtime 500ms
}
(in_group --rounds 3 --vary cgroup:io.max=max,riops=200) >io.json 2>io.err || fail "$(cat io.err)"
limits >io.after
(in_group --rounds 3 --vary cgroup:/slow:memory.high=max,64m --vary cgroup:/slow:cpu.max=max,50000) \
    >cpu.json 2>cpu.err || fail "$(cat cpu.err)"
limits >cpu.after
in_group --vary cgroup:io.max=max,riops=200 --rounds 100 >killed.json 2>killed.err &
tool=$!
limited() { grep -q riops=200 /sys/fs/cgroup/slow/io.max; }
wait_for limited
sleep 1
kill -KILL $tool
wait $tool || true
unlimited() { ! limited && [ ! -e /run/biopsy/compare-nullb0.lock ]; }
wait_for unlimited
limits >killed.after
no_null_disks
