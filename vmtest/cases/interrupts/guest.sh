# Interrupts of several drives at once, with 1, 3 and 8 queues on 4 CPUs: each vector has as many as the kernel
# counts, and carries what its queue completes.
# append: queues=1,3,8
. /guest/lib.sh

uname -r >release
# Newer kernels look for drives side by side: their names are chance.
for serial in 1 2 3; do
    for folder in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' <"$folder/serial")" != "queues$serial" ] || basename "$folder"n1
    done
done >drives
devices=
while read -r name; do devices="$devices -d $name"; done <drives
# What each queue completes is known by the other view of the same load. How much is missed on 7.x depends on how busy
# the host is (the case `preempted`): it has to be accounted for, not absent.
# shellcheck disable=SC2046,SC2086 # several words
biopsy latency $devices --max-loss 100 --json -o latency.json -- \
    biopsy interrupts $devices --max-loss 100 --time-every 1 --json -o interrupts.json -- \
    biopsy load --no-drive-check $(sed 's|^|/dev/|' drives) --iodepth 8 --numjobs 4 --runtime 2s --json -o load.json

# An interval is the window in pieces; and a sample is as exact in what it counts.
# shellcheck disable=SC2046,SC2086 # several words
biopsy interrupts $devices 1 --max-loss 100 --json -- biopsy load --no-drive-check $(sed 's|^|/dev/|' drives) --iodepth 4 --runtime 3s \
    >pieces.json
# shellcheck disable=SC2086 # several words
biopsy interrupts $devices --for 1s >idle.txt
