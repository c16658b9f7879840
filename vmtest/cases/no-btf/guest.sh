# A kernel without BTF: the one sentence says so, and `check` what that means. Hidden here, not absent.
. /guest/lib.sh

trap 'umount /sys/kernel/btf' EXIT
mount -t tmpfs tmpfs /sys/kernel/btf
biopsy check >check.txt
biopsy check --json >check.json
status=0
biopsy latency -d nvme0n1 --for 1s >latency.out 2>latency.err || status=$?
echo "$status" >latency.exit
biopsy devices --json >devices.json
