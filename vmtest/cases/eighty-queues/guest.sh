# 80 queues on each of two disks, of which those of CPU 0 and 64 differ by a power of two: a table that
# is sized by the online CPUs, or folded, mixes them up. Each CPU reads another number of blocks.
# smp: 80
# append: maxcpus=2
. /guest/lib.sh

for cpu in 64 79; do
    echo 1 >"/sys/devices/system/cpu/cpu$cpu/online"
done
null_disk nullb0 completion_nsec=10000 submit_queues=80
null_disk nullb1 completion_nsec=10000 submit_queues=80

# Which queue serves a CPU, as JSON: {"nullb0": {"0": QUEUE, ...}, ...}
queue_of() { # DISK CPU
    for queue in "/sys/block/$1/mq"/*; do
        case ", $(cat "$queue/cpu_list")," in
        *" $2,"*) echo "${queue##*/}" ;;
        esac
    done
}

cat >load.sh <<'END'
read_blocks() { # CPU DISK COUNT
    taskset -c "$1" dd if="/dev/$2" of=/dev/null bs=4096 count="$3" iflag=direct 2>/dev/null
}
for cpu in 0 1 64 79; do
    read_blocks $cpu nullb0 $((200 + cpu)) &
    read_blocks $cpu nullb1 $((500 + cpu)) &
done
wait
END
traced latency nullb0 -d nullb1 -- sh load.sh
for disk in nullb0 nullb1; do
    for cpu in 0 1 64 79; do
        echo "$disk $cpu $(queue_of "$disk" "$cpu")"
    done
done >queues
