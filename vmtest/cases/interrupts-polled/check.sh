exited polled 0
# The generator first checks with one read, by an interrupt, whether the drive
# can be read.
device polled nvme0n1 '.ios == $ios and .completed.interrupt == 1 and .completed.task == .ios - 1' ios "$(cat polled.ios)"
expect polled.json '.polled | length == 1 and .[0].device == "nvme0n1" and .[0].completions == $ios - 1' \
    ios "$(cat polled.ios)"
expect polled.json '.polled[0] | .polls > 0 and .polls <= .completions and .completions_per_poll.count == .polls
    and .completions_per_poll.sum == .completions and .completions_per_poll.max <= 8'
expect polled.json '[.vectors[] | select(.queue != null) | .interrupts] | add == 1'
# QEMU's drive supports coalescing, and it is off.
expect polled.json '.devices[0].coalescing == {completions: 1, time_us: 0}'
