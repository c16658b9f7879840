trusted latency loop0
device latency loop0 '.layers[0].name == "nullb0" and .layers[0].ios > 0 and (.bio_based | not)'
device latency nullb0 '.added_for == ["loop0"] and .kernel_check == "ok" and .ops.read.ios == 100'
# Each read finds its page on the disk, whose time is known; what is left is the loop driver's.
device latency loop0 '.ops.read.layer | .ios == 100 and .lower_mean_ns >= 2e6 and .mean_ns > 0'
