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

# How many BPF programs the kernel holds.
programs() {
    bpftool prog show | grep -c '^[0-9]' || true
}

# Starts `biopsy latency` in the background, as $tool, and waits until its programs are in the kernel,
# which takes seconds under emulation: start_latency OPTION...
start_latency() {
    idle=$(programs)
    biopsy latency "$@" &
    tool=$!
    wait_for loaded
}
loaded() { [ "$(programs)" -gt "$idle" ]; }

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

# Traces DISK by `biopsy latency` and leaves FILE.json (the view), FILE.exit (its exit status), FILE.err
# and FILE.ios (what the kernel counted): traced FILE DISK OPTION... -- COMMAND...
# The load is a command of the tool's, so that all of it lies inside the window.
traced() {
    file=$1 disk=$2
    shift 2
    before=$(kernel_ios "$disk")
    status=0
    biopsy latency -d "$disk" --json -o "$file.json" "$@" 2>"$file.err" || status=$?
    echo "$status" >"$file.exit"
    echo $(($(kernel_ios "$disk") - before)) >"$file.ios"
}

# A null_blk disk of its own service time: null_disk NAME ATTRIBUTE=VALUE... (the names are configfs's).
# The module's parameters would give every disk the same.
null_disk() {
    modprobe null_blk nr_devices=0
    folder=/sys/kernel/config/nullb/$1
    mkdir "$folder"
    # Completion by timer (irqmode 2) on the multi-queue path (queue_mode 2); size in MiB. Polled queues,
    # which older kernels do not have, would be a second queue of every CPU.
    for setting in index="${1#nullb}" size=256 queue_mode=2 irqmode=2 poll_queues=0 "$@"; do
        case $setting in
        poll_queues=*) [ -e "$folder/poll_queues" ] || continue ;;
        *=*) ;;
        *) continue ;;
        esac
        echo "${setting#*=}" >"$folder/${setting%%=*}"
    done
    echo 1 >"$folder/power"
    [ -b "/dev/$1" ] || fail "null_blk made no $1"
}

# Removes what null_disk made; the module cannot be unloaded before.
no_null_disks() {
    for folder in /sys/kernel/config/nullb/*/; do
        [ ! -d "$folder" ] || rmdir "$folder"
    done
}

# A disk of scsi_debug, as $scsi: scsi_disk PARAMETER=VALUE... (the module's).
scsi_disk() {
    modprobe sd_mod
    modprobe scsi_debug "$@"
    # The kernel looks for disks in the background.
    wait_for found_scsi_disk
}
found_scsi_disk() {
    scsi=$(basename "$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/*)")
    [ -b "/dev/$scsi" ]
}

# Has the kernel write down events of a disk: record DISK EVENT..., and later recorded FILE.
record() {
    number=$(cat "/sys/block/$1/dev")
    shift
    echo mono >/sys/kernel/tracing/trace_clock
    echo >/sys/kernel/tracing/trace
    for event; do
        event=/sys/kernel/tracing/events/block/$event
        echo "dev == $((${number%:*} << 20 | ${number#*:}))" >"$event/filter"
        echo 1 >"$event/enable"
    done
}
recorded() {
    echo >/sys/kernel/tracing/set_event
    grep -v '^#' /sys/kernel/tracing/trace >"$1" || true
}

# Loads the NVMe driver, anew where it was there: nvme_driver PARAMETER=VALUE...
nvme_driver() {
    [ ! -e /sys/module/nvme ] || modprobe -r nvme
    # The drive of QEMU 10 says that it has several paths, and would lie behind a bio-based disk; that of 7.2
    # has one. The command line does not reach the modules of busybox's modprobe.
    modprobe nvme_core multipath=N
    modprobe nvme "$@"
    wait_for [ -b /dev/nvme0n1 ]
}
