# CPUs go and come back while their drive is traced: with them go interrupts, hardware queues' homes and the
# tasks that submit. No I/O may vanish from the books.
. /guest/lib.sh

cpu=/sys/devices/system/cpu
bring_back() { for n in 1 2 3; do echo 1 >$cpu/cpu$n/online || true; done; }
trap bring_back EXIT

toggle() {
    while [ ! -e ended ]; do
        for n in 1 2 3; do
            echo 0 >$cpu/cpu$n/online
            usleep 100000
            echo 1 >$cpu/cpu$n/online
            usleep 50000
            echo switched >>switches
        done
    done
}
during() {
    rm -f ended
    toggle &
    toggler=$!
    "$@"
    touch ended
    wait "$toggler"
}
# The tool is started by a shell that may run anywhere, and its readers are not pinned to a CPU.
during traced latency nvme0n1 -- sh -c '
    for i in 1 2 3; do dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1500 iflag=direct & done
    biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 4 --runtime 4s --json -o load.json
    wait'
status=0
during biopsy diagnose --no-load -d nvme0n1 --for 2s --json -o report.html >diagnose.json 2>diagnose.err || status=$?
echo "$status" >diagnose.exit
# One CPU is missing from the start to the end.
echo 0 >$cpu/cpu2/online
traced without nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 1s --json -o load2.json
