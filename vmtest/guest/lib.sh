# For the guest half of a case: sourced by guest.sh, in the guest's busybox shell with set -eu.
# What a case writes into its current folder is what its check.sh finds there.

# Ends the case with a reason.
fail() {
    echo "$*"
    exit 1
}

# Waits up to 10 s until a command succeeds.
wait_for() {
    for _ in $(seq 100); do
        if "$@" 2>/dev/null; then return 0; fi
        usleep 100000
    done
    fail "waited 10 s for: $*"
}

# All I/Os that the kernel counted on a disk: reads, writes, discards and flushes.
kernel_ios() {
    set -- $(cat "/sys/block/$1/stat")
    echo $(($1 + $5 + ${12:-0} + ${16:-0}))
}

# Runs a command and writes into FILE how many I/Os the kernel counted on DISK meanwhile:
# counted DISK FILE COMMAND...
counted() {
    disk=$1 file=$2
    shift 2
    before=$(kernel_ios "$disk")
    "$@"
    echo $(($(kernel_ios "$disk") - before)) >"$file"
}
