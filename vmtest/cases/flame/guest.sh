# Flame graphs of a program of which it is known what its functions take: on the CPU, and in I/O on a disk that takes
# 2 ms for each read.
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
# Stacks of all, then of those that a small budget allows.
flame io --io -d nullb0 --max-cost 100 -- sh -c 'exec shares io /dev/nullb0 250 >passed'
flame few --io -d nullb0 --max-cost 0.05 -- shares io /dev/nullb0 750
no_null_disks
