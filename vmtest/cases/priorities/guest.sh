# I/O priorities of a load: as many requests have that of single operations as the load says, and the others that of
# their thread.
. /guest/lib.sh

for engine in io_uring libaio; do
    record nvme0n1 block_rq_issue
    # One at a time, so that none is merged.
    biopsy load /dev/nvme0n1 --ioengine $engine --iodepth 1 --number_ios 1000 --no-drive-check \
        --prioclass 3 --cmdprio_percentage 30 --cmdprio 2 --json -o $engine.json
    recorded $engine.trace
done
