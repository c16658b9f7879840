# I/O priorities of a load: as many requests as the load reports have the priority set for single operations, and
# the others have that of their thread.
. /guest/lib.sh

for engine in io_uring libaio; do
    record nvme0n1 block_rq_issue
    # One at a time, to prevent merges.
    biopsy load /dev/nvme0n1 --ioengine $engine --iodepth 1 --number_ios 1000 --no-drive-check \
        --prioclass 3 --cmdprio_percentage 30 --cmdprio 2 --json -o $engine.json
    recorded $engine.trace
done
