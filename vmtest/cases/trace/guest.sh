# Each I/O on a line of its own, on NVMe: as many as the kernel counted, with stages that add up; the slowest,
# and a full ring.
. /guest/lib.sh

# lines FILE OPTION... -- COMMAND...: as `traced` does, by `biopsy trace`.
lines() {
    file=$1
    shift
    before=$(kernel_ios nvme0n1)
    status=0
    biopsy trace -d nvme0n1 --json -o "$file.json" "$@" 2>"$file.err" || status=$?
    echo "$status" >"$file.exit"
    echo $(($(kernel_ios nvme0n1) - before)) >"$file.ios"
}

uname -r >release
lines ring -- biopsy load /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 1s --json -o load.json
lines waits -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
lines top --top 5 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
lines every --every 10 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
lines full --fault-ring-bytes 4096 -- biopsy load /dev/nvme0n1 --iodepth 32 --runtime 1s --json -o /dev/null
