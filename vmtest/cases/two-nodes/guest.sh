# Two NUMA nodes with a drive at the second: to which CPUs a load binds its threads and on which node its buffers are,
# by default and with options.
# append: nodes=2
. /guest/lib.sh

cat /sys/devices/system/node/node0/cpulist /sys/devices/system/node/node1/cpulist >nodes
cat /sys/class/nvme/nvme0/device/numa_node >drive
said() { # NAME WORD...
    name=$1 status=0
    shift
    biopsy "$@" --json >"$name.json" 2>"$name.err" || status=$?
    echo "$status" >"$name.exit"
}
said devices devices
load() { # NAME WORD...
    name=$1
    shift
    said "$name" load --no-drive-check /dev/nvme0n1 --runtime 300ms "$@"
}
load usual --numjobs 2
load local --numjobs 2 --numa local
load remote --numjobs 2 --numa remote
load sweep --numa local,remote

# For a running load, as the kernel reports it: the CPUs of its threads, and the nodes of its memory.
reads() { [ "$(kernel_ios nvme0n1)" -gt $((before + 100)) ]; }
watched() { # NAME WORD...
    name=$1 status=0
    shift
    before=$(kernel_ios nvme0n1)
    biopsy load --no-drive-check /dev/nvme0n1 --runtime 60s --iodepth 256 --bs 16k "$@" --json \
        >"$name.json" 2>"$name.err" &
    tool=$!
    wait_for reads
    for task in "/proc/$tool/task"/*; do
        echo "$(cat "$task/comm")=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$task/status")"
    done >"$name.threads"
    cat "/proc/$tool/numa_maps" >"$name.maps"
    kill -INT "$tool"
    wait "$tool" || status=$?
    echo "$status" >"$name.exit"
}
watched near
watched named --numa_cpu_nodes 0
watched memory --numa_cpu_nodes 0 --numa_mem_policy bind:1

# The diagnosis of a reader that is bound to the CPUs of one node.
diagnosed() { # NAME CPUS
    status=0
    biopsy diagnose -d nvme0n1 --json -- taskset -c "$2" dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=2000 iflag=direct \
        >"$1.json" 2>"$1.err" || status=$?
    echo "$status" >"$1.exit"
}
diagnosed from-far 0-1
diagnosed from-near 2-3
