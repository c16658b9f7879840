# A user with CAP_BPF and CAP_PERFMON only: all stages of an NVMe drive, including those whose event is in a
# module, which has types for root only; but no cost. Either capability alone is refused.
. /guest/lib.sh

uname -r >release
[ ! -e /sys/kernel/btf/nvme_core ] || echo yes >module-btf
# Maps are charged to it before 5.11.
ulimit -l unlimited
chmod 777 .
chmod o+r /dev/nvme0n1
trap 'chmod o-r /dev/nvme0n1' EXIT
# busybox's own setpriv cannot do that, and its shell would prefer it.
with() {
    capabilities=$1
    shift
    /bin/setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all"$capabilities" \
        --ambient-caps=-all"$capabilities" --bounding-set=-all"$capabilities" "$@"
}
measure() {
    status=0
    with ,+bpf,+perfmon biopsy latency -d nvme0n1 --json -o latency.json -- \
        biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 2s --json -o load.json 2>latency.err || status=$?
    echo "$status" >latency.exit
}
counted nvme0n1 latency.ios measure
with ,+bpf,+perfmon biopsy check --json >check.json
for one in bpf perfmon; do
    status=0
    with ,+$one biopsy latency -d nvme0n1 --for 1s >$one.out 2>$one.err || status=$?
    echo "$status" >$one.exit
done
