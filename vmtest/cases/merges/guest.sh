# Adjacent I/Os that are submitted together are merged into one request: merges and I/Os equal the
# kernel's counts, and operations equal the generator's. Then the same for write-back.
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=200000 submit_queues=1
merged() {
    set -- $(cat /sys/block/nullb0/stat)
    echo $(($2 + $6))
}
had=$(merged)
traced reads nullb0 -- biopsy load --no-drive-check /dev/nullb0 --rw read --iodepth 32 --runtime 2s --json -o load.json
echo $(($(merged) - had)) >reads.merges
had=$(merged)
traced writes nullb0 -- dd if=/dev/zero of=/dev/nullb0 bs=1M count=64 conv=fsync
echo $(($(merged) - had)) >writes.merges
