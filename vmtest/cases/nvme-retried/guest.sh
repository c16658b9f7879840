# Retried commands of an NVMe drive (vmtest/machine.sh injects the errors): failed with an error that allows a
# retry, once or twice; not completed in time, so that the driver aborts the command; and taken back by a
# reset of the controller. The drive had all of these commands: they are retries, and the time of the failed
# attempts is in `device`.
# append: drive=faulty
. /guest/lib.sh

uname -r >release
setting=/sys/block/nvme0n1/queue/io_timeout
usual=$(cat "$setting")
answers=/sys/kernel/tracing/events/nvme/nvme_complete_rq
trap 'echo "$usual" >"$setting"; echo 0 >"$answers/enable"; echo 0 >"$answers/filter"' EXIT
reads() { # VIEW COMMAND...
    view=$1
    shift
    dmesg -c >/dev/null
    record nvme0n1 block_rq_issue block_rq_requeue
    echo 'disk == "nvme0n1"' >"$answers/filter"
    echo 1 >"$answers/enable"
    traced "$view" nvme0n1 --detail -- "$@"
    recorded "$view.trace"
    dmesg >"$view.dmesg"
}
cat >late.sh <<'END'
dd if=/dev/nvme0n1 of=/dev/null bs=384k count=1 iflag=direct
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1 skip=200 iflag=direct
END
cat >reset.sh <<'END'
dd if=/dev/nvme0n1 of=/dev/null bs=256k count=1 iflag=direct
dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1 skip=200 iflag=direct &
usleep 700000
echo 1 >/sys/class/nvme/nvme0/reset_controller
wait
END
# Waits until the drive's rate limit has recovered, and no timer of earlier commands is running.
rest() { sleep 4; }
reads plain dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=50 iflag=direct
reads failed dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=200 skip=16384 iflag=direct
rest
echo 1000 >"$setting"
reads late sh late.sh
echo "$usual" >"$setting"
rest
reads reset sh reset.sh
