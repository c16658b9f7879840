# A known difference: disks with 200 and 220 µs, ten results of each. Also two disks with the same
# time.
# append: time=virtual
. /guest/lib.sh

# The kernel tests its ciphers for a second or two after the boot.
wait_for sh -c '! grep -qsx cryptomgr_test /proc/[0-9]*/comm'
runs() { # NS FILE
    null_disk nullb0 completion_nsec="$1" irqmode=2
    for _ in $(seq 10); do
        biopsy load --no-drive-check /dev/nullb0 --iodepth 1 --runtime 200ms --json >>"$2"
    done
    no_null_disks
}
runs 200000 fast
runs 220000 slow
runs 200000 again
for metric in mean_ns iops; do
    biopsy compare fast slow --metric $metric --json >slower.$metric.json
    biopsy compare slow fast --metric $metric --json >faster.$metric.json
done
biopsy compare fast again --json >same.json
