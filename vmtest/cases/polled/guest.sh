# The drive has one polled queue, and io_uring polls it (IOPOLL): these reads complete without an interrupt,
# and still have all five stages. Without such a queue the load is refused in one sentence.
. /guest/lib.sh

uname -r >release
status=0
biopsy load --no-drive-check /dev/nvme0n1 --hipri --runtime 1s >refused.out 2>refused.err || status=$?
echo "$status" >refused.exit

nvme_driver poll_queues=1
trap 'nvme_driver' EXIT
# The driver's I/O queues, from 1 on; 0 is the admin queue.
interrupts() { awk '/nvme0q[1-9]/ { for (i = 2; i <= 5; i++) n += $i } END { print n + 0 }' /proc/interrupts; }
had=$(interrupts)
record nvme0n1 block_rq_complete
traced latency nvme0n1 -- biopsy load --no-drive-check /dev/nvme0n1 --hipri --iodepth 8 --runtime 2s --json -o load.json
echo $(($(interrupts) - had)) >interrupts
recorded trace
# The third flag after the CPU is the interrupt context; a dot means task context.
awk '/block_rq_complete/ { n++; interrupted += $3 !~ /^..[.]/ } END { print n, interrupted }' trace >contexts
rm trace

# One queue for writes, one polled queue, and the others for reads.
nvme_driver write_queues=1 poll_queues=1
traced kinds nvme0n1 -- sh -c 'dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=100 iflag=direct
    dd if=/dev/zero of=/dev/nvme0n1 bs=4096 count=50 oflag=direct'
