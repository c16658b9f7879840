# Atomic writes, which a power failure cannot tear: each reaches the disk as one request with REQ_ATOMIC. A disk or
# kernel without them is reported as an error.
. /guest/lib.sh

uname -r >release
# Kernels before 6.11 ignore the parameter, with a message in their log.
scsi_disk atomic_wr=1 dev_size_mb=64
cat "/sys/block/$scsi/queue/atomic_write_unit_max_bytes" >unit 2>/dev/null || echo 0 >unit
# written NAME DISK ENGINE: writes NAME.json, NAME.exit and NAME.err.
written() {
    status=0
    biopsy load "/dev/$2" --rw randwrite --bs 4k --atomic 1 --ioengine "$3" --number_ios 500 --iodepth 8 \
        --write --destroy-data-on "$2" --json -o "$1.json" 2>"$1.err" || status=$?
    echo "$status" >"$1.exit"
}
for engine in io_uring libaio pvsync2; do
    record "$scsi" block_rq_issue
    written "$engine" "$scsi" "$engine"
    recorded "$engine.trace"
done
written without nvme0n1 io_uring
