trusted latency loop0
device latency loop0 '.layers[0].name == "nullb0" and .layers[0].ios > 0 and (.bio_based | not)'
device latency nullb0 '.added_for == ["loop0"] and .kernel_check == "ok" and .ops.read.ios == 100'
# Each read has one page on the disk, whose time is known. The rest is the loop driver's.
device latency loop0 '.ops.read.layer | .ios == 100 and .lower_mean_ns >= 2e6 and .mean_ns > 0'
# 100 reads of 2 ms each, except those served by the file's cache. Before 87579e9b7d8d (5.13) the worker was a thread
# named after the disk.
exited worker 0
waited=$(awk -F'[; ]' '/^(kworkers for loop0|loop0);/ && /schedule/ && !/worker_thread_\[k\];schedule/ { ns += $NF }
    END { printf "%.0f", ns }' worker.folded)
[ "$waited" -gt 100000000 ] || fail "waited $waited ns for loop0: $(cut -c1-200 worker.folded)"
! grep '^kworker/[^;]*;.*worker_thread_\[k\]' worker.folded || fail "workers by their CPU"
