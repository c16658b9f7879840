# Flame graphs of a program whose functions take known shares: of CPU time, and of I/O on a disk with 2 ms per read.
# append: time=virtual
# timeout: 600
. /guest/lib.sh

null_disk nullb0 completion_nsec=2000000
# name LIMIT OPTION... -- COMMAND...
flame() {
    name=$1
    shift
    status=0
    biopsy flame --folded -o "$name.folded" --json "$@" >"$name.json" 2>"$name.err" || status=$?
    echo "$status" >"$name.exit"
}
flame cpu -F 499 --comm shares -- shares cpu 6
flame sides -F 499 --comm shares -- sh -c 'exec shares sides 6 >clock'
# With stacks of all I/Os, and then with as many as a small budget allows.
flame io --io -d nullb0 --max-cost 100 -- sh -c 'exec shares io /dev/nullb0 250 >passed'
flame few --io -d nullb0 --max-cost 0.05 -- shares io /dev/nullb0 750
no_null_disks
