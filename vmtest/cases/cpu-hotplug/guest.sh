# CPUs go offline and come back while their drive is traced. Interrupts, the CPUs of hardware queues, and
# submitting tasks move. Every I/O must be accounted for.
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
# The tool is started by a shell that is not bound to a CPU, and the readers are not either.
during traced latency nvme0n1 -- sh -c '
    for i in 1 2 3; do dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1500 iflag=direct & done
    biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 4 --runtime 4s --json -o load.json
    wait'
status=0
during biopsy diagnose --no-load -d nvme0n1 --for 2s --json -o report.html >diagnose.json 2>diagnose.err || status=$?
echo "$status" >diagnose.exit
# One CPU is offline for the whole run.
echo 0 >$cpu/cpu2/online
traced without nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 1s --json -o load2.json
