# The I/O scheduler is changed twice during the trace: counts stay exact, also of merged and requeued
# I/Os.
. /guest/lib.sh

scheduler=/sys/block/nvme0n1/queue/scheduler
trap 'echo none >"$scheduler"' EXIT
cat >load.sh <<'END'
biopsy load --no-drive-check /dev/nvme0n1 --iodepth 16 --runtime 5s --json -o load.json &
for name in mq-deadline none; do
    usleep 1500000
    echo $name >/sys/block/nvme0n1/queue/scheduler || exit 1
    cat /sys/block/nvme0n1/queue/scheduler >>seen
done
wait
END
echo none >"$scheduler"
traced none nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 16 --runtime 1s
echo mq-deadline >"$scheduler"
traced deadline nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 16 --runtime 1s
echo none >"$scheduler"
traced switched nvme0n1 -- sh load.sh
