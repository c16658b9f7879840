# For the guest half of a case: sourced by guest.sh, in the guest's busybox shell with set -eu.
# What a case writes into its current folder is what its check.sh finds there.

# Ends the case with a reason.
fail() {
    echo "$*"
    exit 1
}

# Waits up to 100 s until a command succeeds.
wait_for() {
    for _ in $(seq 1000); do
        if "$@" 2>/dev/null; then return 0; fi
        usleep 100000
    done
    fail "waited 100 s for: $*"
}

# How many BPF programs are attached.
links() {
    bpftool link show | grep -c '^[0-9]' || true
}

# Starts `biopsy latency` in the background, as $tool, and waits until its programs are attached: to load them
# takes seconds under emulation, and many on a host that is busy. start_latency OPTION...
start_latency() {
    idle=$(links)
    biopsy latency --max-cost 0 "$@" &
    tool=$!
    wait_for attached
}
# The first of them are not all.
attached() { [ "$(links)" -gt $((idle + 3)) ]; }

# All I/Os that the kernel counted on a disk or partition: reads, writes, discards and flushes.
kernel_ios() {
    set -- $(cat "/sys/block/$1/stat" 2>/dev/null || cat "/sys/class/block/$1/stat")
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
# The load is a command of the tool's, so that all of it lies inside the window. Emulation makes programs so slow that
# --max-cost would have operations followed in slices of time; what is tested is each of them.
traced() {
    file=$1 disk=$2
    shift 2
    before=$(kernel_ios "$disk")
    status=0
    biopsy latency -d "$disk" --max-cost 0 --json -o "$file.json" "$@" 2>"$file.err" || status=$?
    echo "$status" >"$file.exit"
    echo $(($(kernel_ios "$disk") - before)) >"$file.ios"
}

# Traces DISK by `biopsy trace` and leaves the same files; FILE.json has a line per I/O and then the summary:
# lines FILE DISK OPTION... -- COMMAND...
lines() {
    file=$1 disk=$2
    shift 2
    before=$(kernel_ios "$disk")
    status=0
    biopsy trace -d "$disk" --json -o "$file.json" "$@" 2>"$file.err" || status=$?
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
    # Not what they need: a SCSI disk may need it too, and then nothing would be loaded anew.
    for module in nvme nvme_core; do
        [ ! -e "/sys/module/$module" ] || rmmod "$module"
    done
    # The drive of QEMU 10 says that it has several paths, and would lie behind a bio-based disk; that of 7.2
    # has one. The command line does not reach the modules of busybox's modprobe.
    modprobe nvme_core multipath=N
    modprobe nvme "$@"
    wait_for [ -b /dev/nvme0n1 ]
}

# A device-mapper disk over another one, of its whole length: mapped NAME TARGET DISK [ARGUMENT...]
# Prints the kernel's name of it.
mapped() {
    modprobe dm_mod
    name=$1 target=$2 below=$3
    shift 3
    # Nobody in the guest listens for udev's events.
    dmsetup create --noudevsync "$name" --table "0 $(cat "/sys/block/$below/size") $target /dev/$below 0 $*" >&2
    dmsetup info -c --noheadings -o blkdevname "$name"
}

# An array without metadata: array NAME LEVEL DISK...
array() {
    array_name=$1 level=$2
    shift 2
    modprobe "raid$level"
    # The chunk is one of raid0's only.
    [ "$level" -ne 0 ] || level="$level --chunk=64"
    # shellcheck disable=SC2086 # two words
    mdadm --build "/dev/$array_name" --run --level=$level --assume-clean --raid-devices=$# "$@"
}

# An ext4 with a journal on a disk, mounted: mounted_ext4 DISK FOLDER
mounted_ext4() {
    # The kernel would load the checksum's module through a program that the guest does not have; in 7.2 it
    # needs none.
    modprobe crc32c_generic || true
    modprobe ext4
    # Not the one that is within busybox.
    /bin/mke2fs -q -t ext4 -O has_journal -E lazy_itable_init=0,lazy_journal_init=0 "/dev/$1"
    mkdir -p "$2"
    # By default ext4 reads its bitmaps some time after the mount, in the background, beside what is measured.
    # 5.10 neither does so nor knows the word.
    mount -t ext4 -o no_prefetch_block_bitmaps "/dev/$1" "$2" || mount -t ext4 "/dev/$1" "$2"
}

# Takes all stacked devices apart, the upper ones first.
no_layers() {
    grep -q device-mapper /proc/misc && dmsetup remove_all --noudevsync
    for folder in /sys/block/md*/md; do
        [ ! -d "$folder" ] || MDADM_NO_UDEV=1 mdadm --stop "/dev/$(basename "$(dirname "$folder")")"
    done
    for disk in /dev/loop[0-9]*; do
        [ ! -e "/sys/block/${disk##*/}/loop" ] || losetup -d "$disk"
    done
    true
}
