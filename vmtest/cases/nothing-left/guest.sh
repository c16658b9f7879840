# A killed biopsy leaves no program, map or link in the kernel, and no changed setting.
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

# The programs of all five stages; on 5.10 only those of the block layer.
attached() {
    case $(cat release) in
    5.10.*) [ "$(bpftool link show | grep -c '^[0-9]')" -ge 8 ] ;;
    *) [ "$(bpftool link show | grep -c '^[0-9]')" -ge 12 ] ;;
    esac
}

uname -r >release
state >before
start_latency -d nvme0n1 --for 60s >/dev/null
wait_for attached
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=100 iflag=direct 2>/dev/null
state >during
kill -KILL "$tool"
wait "$tool" || true
# The kernel frees programs shortly after the last reference is dropped.
wait_for gone
