# timeout: 400
# The load generator on a whole drive whose data may be lost: every engine writes, verifies and trims it.
# It is refused without the required options or while the drive is in use, and counts failures.
. /guest/lib.sh

uname -r >release

# Reads, writes and discards in the kernel's counters, including merged ones.
moved() {
    set -- $(cat /sys/block/nvme0n1/stat)
    echo $(($1 + $2)) $(($5 + $6)) $((${12:-0} + ${13:-0}))
}

# loaded NAME ARGUMENT...: writes NAME.json, NAME.exit, NAME.err and NAME.moved (the kernel's counts).
loaded() {
    name=$1
    shift
    set -- load "$@" --no-drive-check --json -o "$name.json"
    before=$(moved)
    status=0
    biopsy "$@" 2>"$name.err" || status=$?
    echo "$status" >"$name.exit"
    echo "$before $(moved)" | awk '{ print $4 - $1, $5 - $2, $6 - $3 }' >"$name.moved"
}
# The same with all options that permit writing: written NAME TARGET WORD...
written() { loaded "$@" --write --destroy-data-on nvme0n1; }

# Nothing is written without every option, or while the drive is in use.
sum() { sha256sum /dev/nvme0n1 >"$1.sum"; }
sum before
loaded unsaid /dev/nvme0n1 --rw randwrite --runtime 1s
loaded unnamed /dev/nvme0n1 --rw randwrite --runtime 1s --write
loaded misnamed /dev/nvme0n1 --rw randwrite --runtime 1s --write --destroy-data-on nvme0n2
written readonly /dev/nvme0n1 --rw randwrite --runtime 1s --readonly
mapped held linear nvme0n1 >held.name
written held /dev/nvme0n1 --rw randwrite --runtime 1s
dmsetup remove --noudevsync held
sum after
mounted_ext4 nvme0n1 /tmp/mounted
written mounted /dev/nvme0n1 --rw randwrite --runtime 1s
umount /tmp/mounted

# The whole drive, and then the whole drive again by runs without a pause.
written whole /dev/nvme0n1 --rw write --bs 128k --iodepth 8 --verify crc32c --runtime 0
for engine in io_uring libaio psync pvsync2; do
    written "write-$engine" /dev/nvme0n1 --ioengine $engine --rw randwrite --bs 4k --iodepth 8 \
        --numjobs 2 --offset_increment 64m --size 64m --io_size 2m --verify crc32c
    written "mixed-$engine" /dev/nvme0n1 --ioengine $engine --rw randrw --rwmixread 70 --bs 4k --iodepth 8 \
        --runtime 1s
done
written trim /dev/nvme0n1 --rw trim --bs 64k --io_size 16m
# A trim blocks its thread. The pairs go twice over so few blocks that the drive has many of them in flight.
written trim-aio /dev/nvme0n1 --rw trim --bs 64k --io_size 16m --ioengine libaio --iodepth 8
written pairs /dev/nvme0n1 --rw trimwrite --bs 4k --size 1m --io_size 3m --iodepth 16 --verify crc32c
# The emulated drive keeps trimmed data; a loop device punches a hole.
modprobe loop max_loop=1
head -c 4194304 /dev/urandom >/tmp/file
losetup /dev/loop0 /tmp/file
loaded hole /dev/loop0 --rw trim --bs 64k --size 2m --runtime 0 --write --destroy-data-on loop0
losetup -d /dev/loop0
head -c 2097152 /tmp/file | tr -d '\0' | wc -c >trimmed
tail -c 2097152 /tmp/file | tr -d '\0' | wc -c >kept
rm /tmp/file
loaded rate /dev/nvme0n1 --rw randread --rate_iops 200 --runtime 3s

# Past the block layer, if the kernel supports it.
if [ -c /dev/ng0n1 ]; then
    written command /dev/ng0n1 --ioengine io_uring_cmd --rw randwrite --iodepth 8 --io_size 2m --verify crc32c
    written command-mixed /dev/ng0n1 --ioengine io_uring_cmd --rw randrw --iodepth 8 --runtime 1s
    written command-trim /dev/ng0n1 --ioengine io_uring_cmd --rw trim --bs 64k --io_size 1m --iodepth 4
    written command-pairs /dev/ng0n1 --ioengine io_uring_cmd --rw trimwrite --bs 4k --size 1m --io_size 3m \
        --iodepth 16 --verify crc32c
    loaded command-unnamed /dev/ng0n1 --ioengine io_uring_cmd --rw randwrite --write --runtime 1s
else
    loaded command /dev/ng0n1 --ioengine io_uring_cmd --runtime 1s
fi
loaded command-block /dev/nvme0n1 --ioengine io_uring_cmd --runtime 1s

# The upper half fails every I/O.
half=$(($(cat /sys/block/nvme0n1/size) / 2))
printf '0 %s linear /dev/nvme0n1 0\n%s %s error\n' $half $half $half | dmsetup create --noudevsync halves
broken=$(dmsetup info -c --noheadings -o blkdevname halves)
echo "$broken" >broken
loaded errors "/dev/$broken" --rw randread --iodepth 4 --runtime 2s
loaded stop "/dev/$broken" --rw randread --iodepth 4 --runtime 20s --on-error stop
loaded failing "/dev/$broken" --rw read --offset $((half * 512)) --iodepth 4 --runtime 20s
dmsetup remove --noudevsync halves

# A byte of every block differs from what was written. Old kernels corrupt writes only.
modprobe dm_flakey
damaged=$(mapped damaged flakey nvme0n1 0 60 5 corrupt_bio_byte 40 w 1 0)
loaded damaged "/dev/$damaged" --rw randwrite --iodepth 4 --io_size 1m --verify crc32c \
    --write --destroy-data-on "$damaged"
dmsetup remove --noudevsync damaged

# Polled: the drive's queue without an interrupt.
nvme_driver poll_queues=1
trap 'nvme_driver' EXIT
written polled /dev/nvme0n1 --hipri --rw randwrite --iodepth 8 --io_size 2m --verify crc32c
written polled-sync /dev/nvme0n1 --ioengine pvsync2 --hipri --rw randrw --runtime 1s
