# 80 queues on each of two disks. CPU 0 and 64 differ by a power of two: a table sized by the online CPUs, or
# with folded indexes, mixes up their queues. Each CPU reads a different number of blocks, slowly and with
# one tag per queue, so that mixed-up I/Os overlap. One reader per CPU: with two, each preempts the other
# inside the programs on 7.x (case `preempted`), which missed 1 to 5 of the 3,088 events here.
# smp: 80
# append: maxcpus=2
. /guest/lib.sh

for cpu in 64 79; do
    echo 1 >"/sys/devices/system/cpu/cpu$cpu/online"
done
null_disk nullb0 completion_nsec=2000000 submit_queues=80 hw_queue_depth=1
null_disk nullb1 completion_nsec=2000000 submit_queues=80 hw_queue_depth=1

cat >load.sh <<'END'
read_blocks() { # CPU DISK COUNT
    taskset -c "$1" dd if="/dev/$2" of=/dev/null bs=4096 count="$3" iflag=direct 2>/dev/null
}
for disks in 'nullb0 nullb1' 'nullb1 nullb0'; do
    for cpu in 0 64; do read_blocks $cpu ${disks% *} $((200 + cpu)) & done
    for cpu in 1 79; do read_blocks $cpu ${disks#* } $((200 + cpu)) & done
    wait
done
END
traced latency nullb0 -d nullb1 -- sh load.sh
# The CPUs of each queue.
grep . /sys/block/nullb[01]/mq/*/cpu_list >queues
