# A tool that is killed leaves no program, map or link in the kernel, and no setting changed.
. /guest/lib.sh

state() {
    for kind in prog map link; do
        bpftool "$kind" show | grep -c '^[0-9]' || true
    done
    cat /proc/sys/kernel/bpf_stats_enabled
}
gone() {
    state >after
    cmp -s before after
}

uname -r >release
state >before
start_latency -d nvme0n1 --for 60s >/dev/null
# All of them, and not only the first.
sleep 1
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=100 iflag=direct 2>/dev/null
state >during
kill -KILL "$tool"
wait "$tool" || true
# The kernel frees programs a moment after the last reference.
wait_for gone
