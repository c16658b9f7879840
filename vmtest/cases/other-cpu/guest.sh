# The drive's one queue has one interrupt, on one CPU. rq_affinity=2 sends each completion to the submitting CPU, by
# an inter-processor interrupt and (since 5.11) a softirq. The count stays exact, and no stage is negative, although
# the stages of an I/O begin and end on different CPUs.
. /guest/lib.sh

# The other three queues are for polling, and no I/O is polled.
nvme_driver poll_queues=3
trap 'nvme_driver' EXIT
echo 2 >/sys/block/nvme0n1/queue/rq_affinity
uname -r >release
moves() { awk '$1 == "BLOCK:" || $1 == "CAL:" { for (i = 2; i <= 5; i++) n += $i } END { print n }' /proc/softirqs /proc/interrupts; }
had=$(moves)
traced latency nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 1 --numjobs 4 --runtime 3s --json -o load.json
echo $(($(moves) - had)) >moves
