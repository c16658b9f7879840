case $(cat release) in 5.10.*) exited reads 3; exit 0 ;; esac
for view in reads split; do trusted $view md0; done
for view in reads split flush; do
    exited $view 0
    device $view md0 '[.layers[].name] == ["nullb0", "nullb1"] and .bio_based'
done
trusted mirror md1
device reads md0 '.ops.read | .bio.count == .ios and .bio.min_ns >= 2e6 and .layer.ios == .ios and .layer.lower_mean_ns >= 2e6 and .layer.mean_ns < 1e6'
device reads md0 '([.layers[].ios] | add) == .ios and .ops.read.ios_without_operation == 0'
device split md0 '.ops.read | .operations == 10 and .ios == 160'
device split md0 '.bytes == 10485760'
# The array itself answers a flush without data, and does not count it.
device flush md0 '.ios == $ios + 1 and kernel == [$ios, $ios] and .kernel_check == "ok" and .ops.empty_flush.ios == 1' ios "$(cat flush.ios)"
# A write to the mirror is one I/O above and two below: no lower time belongs to
# a single I/O.
device mirror md1 '.ops.write | .ios == 50 and .bio.count == 50 and (has("layer") | not) and .operations == 50'
device mirror md1 '([.layers[].ios] | add) == 100'
expect mirror.json '[.missing[] | select(.part == "layer" and .device == "md1") | .reason] == ["not-one-to-one"]'
