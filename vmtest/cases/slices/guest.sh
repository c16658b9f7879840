# Operations are followed in two slices of 1 s, 20 s apart, while CPUs go offline and come back and a thousand tasks
# sleep: each attach and detach of the system call events walks all of them.
# long: yes
. /guest/lib.sh

cpu=/sys/devices/system/cpu
bring_back() { for n in 1 2 3; do echo 1 >$cpu/cpu$n/online || true; done; }
trap bring_back EXIT

for _ in $(seq 1000); do sleep 100 & done
# Not while slices begin and end: events missed as a CPU goes offline are tested by cpu-hotplug.
(
    sleep 8
    for n in 1 2 3; do
        echo 0 >$cpu/cpu$n/online
        sleep 1
        echo 1 >$cpu/cpu$n/online
    done
) &
before=$(kernel_ios nvme0n1)
status=0
biopsy latency -d nvme0n1 --max-cost 0.001 --json -o latency.json -- \
    biopsy load --no-drive-check /dev/nvme0n1 --iodepth 4 --rate-iops 300 --runtime 24s --json -o load.json \
    2>latency.err || status=$?
echo "$status" >latency.exit
echo $(($(kernel_ios nvme0n1) - before)) >latency.ios
uname -r >release
