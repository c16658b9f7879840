# timeout: 400
# The load generator on a whole drive that may be lost: it writes, reads back and trims by every engine, is
# refused without the word or where the drive is used, and counts what fails.
. /guest/lib.sh

uname -r >release

# Reads, writes and discards that the kernel counted, those that were merged into others among them.
moved() {
    set -- $(cat /sys/block/nvme0n1/stat)
    echo $(($1 + $2)) $(($5 + $6)) $((${12:-0} + ${13:-0}))
}

# loaded NAME ARGUMENT...: leaves NAME.json, NAME.exit, NAME.err and NAME.moved (what the kernel counted).
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
# The same with all that it takes to write: written NAME TARGET WORD...
written() { loaded "$@" --write --destroy-data-on nvme0n1; }

# Nothing is written without every word, nor while anybody uses it.
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

# The whole drive, and then all of it again by runs that follow at once.
written whole /dev/nvme0n1 --rw write --bs 128k --iodepth 8 --verify crc32c --runtime 0
for engine in io_uring libaio psync pvsync2; do
    written "write-$engine" /dev/nvme0n1 --ioengine $engine --rw randwrite --bs 4k --iodepth 8 \
        --numjobs 2 --offset_increment 64m --size 64m --io_size 2m --verify crc32c
    written "mixed-$engine" /dev/nvme0n1 --ioengine $engine --rw randrw --rwmixread 70 --bs 4k --iodepth 8 \
        --runtime 1s
done
written trim /dev/nvme0n1 --rw trim --bs 64k --io_size 16m
# Twice over so few blocks that the drive has many of them at once.
# A trim is a call of its own, in which the thread waits.
written trim-aio /dev/nvme0n1 --rw trim --bs 64k --io_size 16m --ioengine libaio --iodepth 8
written pairs /dev/nvme0n1 --rw trimwrite --bs 4k --size 1m --io_size 3m --iodepth 16 --verify crc32c
# The emulated drive keeps what is trimmed; a loop device punches a hole.
modprobe loop max_loop=1
head -c 4194304 /dev/urandom >/tmp/file
losetup /dev/loop0 /tmp/file
loaded hole /dev/loop0 --rw trim --bs 64k --size 2m --runtime 0 --write --destroy-data-on loop0
losetup -d /dev/loop0
head -c 2097152 /tmp/file | tr -d '\0' | wc -c >trimmed
tail -c 2097152 /tmp/file | tr -d '\0' | wc -c >kept
rm /tmp/file
loaded rate /dev/nvme0n1 --rw randread --rate_iops 200 --runtime 3s

# Past the block layer, where the kernel can.
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

# The upper half answers by errors.
half=$(($(cat /sys/block/nvme0n1/size) / 2))
printf '0 %s linear /dev/nvme0n1 0\n%s %s error\n' $half $half $half | dmsetup create --noudevsync halves
broken=$(dmsetup info -c --noheadings -o blkdevname halves)
echo "$broken" >broken
loaded errors "/dev/$broken" --rw randread --iodepth 4 --runtime 2s
loaded stop "/dev/$broken" --rw randread --iodepth 4 --runtime 20s --on-error stop
loaded failing "/dev/$broken" --rw read --offset $((half * 512)) --iodepth 4 --runtime 20s
dmsetup remove --noudevsync halves

# A byte of every block is another one than was written. Old kernels do that to writes only.
modprobe dm_flakey
damaged=$(mapped damaged flakey nvme0n1 0 60 5 corrupt_bio_byte 40 w 1 0)
loaded damaged "/dev/$damaged" --rw randwrite --iodepth 4 --io_size 1m --verify crc32c \
    --write --destroy-data-on "$damaged"
dmsetup remove --noudevsync damaged

# Polled: the drive's queue that no interrupt serves.
nvme_driver poll_queues=1
trap 'nvme_driver' EXIT
written polled /dev/nvme0n1 --hipri --rw randwrite --iodepth 8 --io_size 2m --verify crc32c
written polled-sync /dev/nvme0n1 --ioengine pvsync2 --hipri --rw randrw --runtime 1s
