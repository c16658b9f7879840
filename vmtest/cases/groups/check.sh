case $(cat release) in
5.10.*)
    for view in groups ring named below nothing; do
        exited $view 3
        grep -q 'error: this kernel is too old' $view.err || fail "$view: $(cat $view.err)"
    done
    exit 0
    ;;
esac
for view in groups ring; do
    trusted $view nvme0n1
    for key in ios bytes operations; do
        expect $view.json '([.groups[].'$key'] | add) == ([.devices[].'$key'] | add)'
    done
    expect $view.json 'all(.groups[]; ([.stages[].sum_ns] | add) == .total.sum_ns and .other == null)'
done
expect groups.json '.groups | length > 1 and all(.[]; .by | keys == ["cgroup","cpu","device","op","process","queue","size"])'
expect groups.json '[.groups[] | select(.by.cgroup == "/groups" and .by.size == [4096, 8192]) | .ios] | add == 300'
expect groups.json '[.groups[] | select(.by.cgroup == "/groups/lower" and .by.size == [16384, 32768]) | .operations] | add == 200'
expect groups.json '[.groups[].by.process | select(.comm == "dd") | .pid] | unique | length == 2'
expect groups.json '([.cpus[].ios] | add) == 500 and ([.nodes[].ios] | add) == 500'
# The generator first checks with one read() whether the drive can be read.
expect ring.json '[.groups[] | select(.by.process.comm == "biopsy") | .operations] | add == $ios + 1' ios "$(jq .ios load.json)"
for view in named below; do exited $view 0; done
device named nvme0n1 '.ios == 500 and .operations == 500 and .kernel_ios_min == null and .all_ios_max == 500'
device below nvme0n1 '.ios == 200 and .operations == 200 and .bytes == 200 * 16384'
expect below.json '[.groups[] | [.by.process.comm, .ios]] == [["dd", 200]]'
expect below.json '[.missing[] | select(.reason == "filtered") | .part] | index("kernel_ios") != null'
exited nothing 0
device nothing nvme0n1 '.ios == 0 and .all_ios_min == 500'

upper=$(cat name)
for key in ios bytes operations; do
    expect layer.json '([.groups[].'$key'] | add) == ([.devices[].'$key'] | add)'
done
for disk in "$upper" nvme0n1; do
    expect layer.json '[.groups[] | select(.by.device == $disk) | .ios] | add == 400' disk "\"$disk\""
    expect layer.json '[.groups[] | select(.by.device == $disk) | .by.process.pid] | unique | length == 2' disk "\"$disk\""
    device layered-dd "$disk" '.ios == 400 and .all_ios_max == 400'
    device layered "$disk" '.ios == 0 and .all_ios_max == 400'
done
expect layer.json '([.cpus[].ios] | add) == 800'
# A device without requests has no hardware queue.
expect layered-dd.json '[.groups[] | select(.by.device == $disk) | .by | has("queue")] == [false]' disk "\"$upper\""
expect layered-dd.json '[.groups[] | select(.by.device == "nvme0n1") | .by | has("queue")] | all'

# ext4 may do I/O of its own before and after.
exited files 0
expect files.json '.lost.ios == 0 and .devices[0].kernel_check == "ok"'
for key in ios bytes operations; do
    expect files.json '([.groups[].'$key'] | add) == ([.devices[].'$key'] | add)'
done
expect files.json '[.groups[] | select(.by.file.path == "/tmp/mounted/one") | .ios, .operations] == [200, 200]'
expect files.json '[.groups[] | select(.by.file.path == "/tmp/mounted/two") | .ios, .operations] == [50, 50]'
for name in three four; do
    expect files.json '[.groups[] | select(.by.file.path == $name) | .bytes] == [1048576]' name "\"/tmp/mounted/$name\""
done
expect files.json '[.groups[] | select(.by.file.kind == "raw_device" and .by.op == "read") | .operations] == [100]'
expect files.json '[.groups[] | select(.by.file.kind == "journal") | .ios] | add > 0'
# Only flushes belong to no file.
expect files.json 'all(.groups[] | select(.by.file == null); .by.op == "flush" or .by.op == "empty_flush")'
