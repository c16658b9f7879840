# A recording counts the same I/Os as the kernel, on every kernel, with the views that the kernel supports.
. /guest/lib.sh

# record NAME OPTION... -- COMMAND...: writes NAME.tar, NAME.exit, NAME.err and NAME.ios, the kernel's own count.
record() {
    file=$1
    shift
    before=$(kernel_ios nvme0n1)
    status=0
    biopsy record -d nvme0n1 -o "$file" "$@" >"$file.out" 2>"$file.err" || status=$?
    echo "$status" >"$file.exit"
    echo $(($(kernel_ios nvme0n1) - before)) >"$file.ios"
    biopsy pack "$file"
    biopsy latency -i "$file.tar" --json >"$file.latency" 2>"$file.latency-err" || true
    rm -r "$file"
}
uname -r >release
record views 0.5 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --runtime 2s --json
record each --with trace,latency 0.5 -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
