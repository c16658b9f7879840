# Functions for the guest half of a case: sourced by guest.sh, in the guest's busybox shell with set -eu. Files that a
# case writes into its current folder are passed to its check.sh.

# Ends the case with a reason.
fail() {
    echo "$*"
    exit 1
}

# Waits up to 100 s for a command to succeed.
wait_for() {
    for _ in $(seq 1000); do
        if "$@" 2>/dev/null; then return 0; fi
        usleep 100000
    done
    fail "waited 100 s for: $*"
}

# Number of attached BPF programs.
links() {
    bpftool link show | grep -c '^[0-9]' || true
}

# Starts `biopsy latency` in the background, as $tool, and waits until its programs are attached. Loading them takes
# seconds under emulation, and longer on a busy host. start_latency OPTION...
start_latency() {
    idle=$(links)
    biopsy latency --max-cost 0 "$@" &
    tool=$!
    wait_for attached
}
# More than the first few: these alone do not mean that all are attached.
attached() { [ "$(links)" -gt $((idle + 3)) ]; }

# All I/Os of a disk or partition in the kernel's counters: reads, writes, discards and flushes.
kernel_ios() {
    set -- $(cat "/sys/block/$1/stat" 2>/dev/null || cat "/sys/class/block/$1/stat")
    echo $(($1 + $5 + ${12:-0} + ${16:-0}))
}

# Runs a command, and writes into FILE how many I/Os the kernel counted on DISK in that time: counted DISK FILE
# COMMAND...
counted() {
    disk=$1 file=$2
    shift 2
    before=$(kernel_ios "$disk")
    "$@"
    echo $(($(kernel_ios "$disk") - before)) >"$file"
}

# Runs `biopsy latency` on DISK. Writes FILE.json (the view), FILE.exit (its exit status), FILE.err and FILE.ios (the
# kernel's count): traced FILE DISK OPTION... -- COMMAND...
# biopsy starts the load as its command, so that all of it is within the measured interval. Under emulation the
# programs are so slow that --max-cost would follow operations in time slices only; the tests check every operation.
traced() {
    file=$1 disk=$2
    shift 2
    before=$(kernel_ios "$disk")
    status=0
    biopsy latency -d "$disk" --max-cost 0 --json -o "$file.json" "$@" 2>"$file.err" || status=$?
    echo "$status" >"$file.exit"
    echo $(($(kernel_ios "$disk") - before)) >"$file.ios"
}

# Runs `biopsy trace` on DISK and writes the same files. FILE.json has a line per I/O, and then the summary:
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

# Creates a null_blk disk with a given service time: null_disk NAME ATTRIBUTE=VALUE... (named as in configfs). The
# module's parameters would apply to all disks.
null_disk() {
    modprobe null_blk nr_devices=0
    folder=/sys/kernel/config/nullb/$1
    mkdir "$folder"
    # Completion by timer (irqmode 2) on the multi-queue path (queue_mode 2); the size is in MiB. No polled queues:
    # they would be a second queue of every CPU, and older kernels do not have them.
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

# Removes the disks of null_disk. The module can be unloaded only after that.
no_null_disks() {
    for folder in /sys/kernel/config/nullb/*/; do
        [ ! -d "$folder" ] || rmdir "$folder"
    done
}

# Creates a disk of scsi_debug, as $scsi: scsi_disk PARAMETER=VALUE... (of the module).
scsi_disk() {
    modprobe sd_mod
    modprobe scsi_debug "$@"
    # The kernel scans for disks in the background.
    wait_for found_scsi_disk
}
found_scsi_disk() {
    scsi=$(basename "$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/*)")
    [ -b "/dev/$scsi" ]
}

# Makes the kernel trace events of a disk: record DISK EVENT..., and later recorded FILE.
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

# Loads the NVMe driver, after unloading it if necessary: nvme_driver PARAMETER=VALUE...
nvme_driver() {
    # Not with their dependencies (modprobe -r): a SCSI disk may use one of these, and then nothing would be reloaded.
    for module in nvme nvme_core; do
        [ ! -e "/sys/module/$module" ] || rmmod "$module"
    done
    # QEMU 10's drive reports several paths, so it would get a bio-based multipath head; that of 7.2 has one path.
    # busybox's modprobe does not apply module parameters of the kernel command line.
    modprobe nvme_core multipath=N
    modprobe nvme "$@"
    wait_for [ -b /dev/nvme0n1 ]
}

# Creates a device-mapper disk over the whole of another one, and prints its kernel name: mapped NAME TARGET DISK
# [ARGUMENT...]
mapped() {
    modprobe dm_mod
    name=$1 target=$2 below=$3
    shift 3
    # --noudevsync: the guest has no udev.
    dmsetup create --noudevsync "$name" --table "0 $(cat "/sys/block/$below/size") $target /dev/$below 0 $*" >&2
    dmsetup info -c --noheadings -o blkdevname "$name"
}

# Creates an array without metadata: array NAME LEVEL DISK...
array() {
    array_name=$1 level=$2
    shift 2
    modprobe "raid$level"
    # Only raid0 has a chunk size.
    [ "$level" -ne 0 ] || level="$level --chunk=64"
    # shellcheck disable=SC2086 # two words
    mdadm --build "/dev/$array_name" --run --level=$level --assume-clean --raid-devices=$# "$@"
}

# Creates an ext4 with a journal on a disk and mounts it: mounted_ext4 DISK FOLDER
mounted_ext4() {
    # The kernel would load the checksum's module with a program that the guest lacks. 7.2 does not need the module.
    modprobe crc32c_generic || true
    modprobe ext4
    # Not busybox's own mke2fs.
    /bin/mke2fs -q -t ext4 -O has_journal -E lazy_itable_init=0,lazy_journal_init=0 "/dev/$1"
    mkdir -p "$2"
    # By default ext4 reads its bitmaps in the background some time after the mount, which would disturb the
    # measurement. 5.10 neither does so nor knows the option.
    mount -t ext4 -o no_prefetch_block_bitmaps "/dev/$1" "$2" || mount -t ext4 "/dev/$1" "$2"
}

# Removes all stacked devices, the upper ones first.
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
