# Two NUMA nodes with a drive at the second: where the threads of a load are bound, by node and by word.
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
load named --numa_cpu_nodes 0
load memory --numa local --numa_mem_policy bind:0
load sweep --numa local,remote
