for run in tests multipath; do
    grep -q '^test result: ok\. [1-9][0-9]* passed; 0 failed' $run || fail "$(grep -aE 'panicked|FAILED|test result|: no ' -A 2 $run)"
done
# No test was skipped for something that the guest has; 5.10 has no /dev/ng*.
left=$(grep -h '^skipped: ' tests multipath | grep -vE '^skipped: (needs root|the root file system is on no disk)$' || true)
case $BIOPSY_VM_KERNEL in
5.10) left=$(echo "$left" | grep -vxF "skipped: no NVMe drive of the test's own" || true) ;;
esac
[ -z "$left" ] || fail "$left"
grep -q '^nvme0c' disks || fail "no multipath head: $(tr '\n' ' ' <disks)"
