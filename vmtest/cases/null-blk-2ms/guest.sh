# A device whose service time is known: null_blk completes each I/O by a timer after 2 ms.
. /guest/lib.sh

null_disk nullb0 completion_nsec=2000000
traced latency nullb0 -- biopsy load /dev/nullb0 --iodepth 1 --runtime 3s --json -o load.json
