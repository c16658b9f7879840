[ "$(tr '\n' ' ' <nodes)" = "0-1 2-3 " ] || fail "the machine has other nodes: $(cat nodes)"
[ "$(cat drive)" = 1 ] || fail "the drive is at node $(cat drive)"
for name in devices usual local remote named memory sweep; do
    exited "$name" 0
done
expect devices.json '[.devices[] | select(.name == "nvme0n1") | .numa_node] == [1]'
# One thread to a CPU, of the drive's node unless the other one is asked for.
bound() { # NAME CPUS NODE
    expect "$1.json" '([.jobs[].cpu] | sort) == '"$2"' and all(.jobs[]; .node == '"$3"' and .ios > 0)'
}
bound usual '[2, 3]' 1
bound local '[2, 3]' 1
bound remote '[0, 1]' 0
expect named.json 'all(.jobs[]; .node == null or .node == 0)'
