# A kernel whose lockdown forbids reading its memory: one sentence, exit status 3, and `check` explains it,
# also without a mounted securityfs. Commands without a probe work.
# append: lockdown=confidentiality
. /guest/lib.sh

cat /proc/cmdline >cmdline
for place in unmounted mounted; do
    biopsy check --json >$place.json
    status=0
    biopsy latency -d nvme0n1 --for 1s >$place.out 2>$place.err || status=$?
    echo "$status" >$place.exit
    [ $place = mounted ] || mount -t securityfs securityfs /sys/kernel/security
done
cat /sys/kernel/security/lockdown >level
biopsy check >check.txt
status=0
biopsy check --self-test -d nvme0n1 >self-test.out 2>self-test.err || status=$?
echo "$status" >self-test.exit
status=0
biopsy diagnose --no-load -d nvme0n1 --for 1s -o report.html >diagnose.out 2>diagnose.err || status=$?
echo "$status" >diagnose.exit
[ ! -e report.html ] || echo report.html >>diagnose.out
biopsy devices --json >devices.json
biopsy load --no-drive-check /dev/nvme0n1 --runtime 500ms --json -o load.json
