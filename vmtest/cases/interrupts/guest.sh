# Interrupts of several drives at once, with 1, 3 and 8 queues on 4 CPUs: each vector has as many as the kernel
# counts, and the completions of its queue.
# append: queues=1,3,8
. /guest/lib.sh

uname -r >release
# Newer kernels probe drives in parallel, so their names vary.
for serial in 1 2 3; do
    for folder in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' <"$folder/serial")" != "queues$serial" ] || basename "$folder"n1
    done
done >drives
devices=
while read -r name; do devices="$devices -d $name"; done <drives
# The other view gives the completions of each queue for the same load. How many events are missed on 7.x depends on
# the host's load (case `preempted`): they must be counted.
# shellcheck disable=SC2046,SC2086 # several words
biopsy latency $devices --max-loss 100 --json -o latency.json -- \
    biopsy interrupts $devices --max-loss 100 --time-every 1 --json -o interrupts.json -- \
    biopsy load --no-drive-check $(sed 's|^|/dev/|' drives) --iodepth 8 --numjobs 4 --runtime 2s --json -o load.json

# Intervals add up to the run. Figures of each interval are exact, too.
# shellcheck disable=SC2046,SC2086 # several words
biopsy interrupts $devices 1 --max-loss 100 --json -- biopsy load --no-drive-check $(sed 's|^|/dev/|' drives) --iodepth 4 --runtime 3s \
    >pieces.json
# shellcheck disable=SC2086 # several words
biopsy interrupts $devices --for 1s >idle.txt
