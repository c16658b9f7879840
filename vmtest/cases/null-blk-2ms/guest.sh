# A device with a known service time: null_blk completes each I/O by a timer after 2 ms.
# append: time=virtual
. /guest/lib.sh

null_disk nullb0 completion_nsec=2000000
traced latency nullb0 -- biopsy load --no-drive-check /dev/nullb0 --iodepth 1 --runtime 3s --json -o load.json
# With a BTF file instead of the kernel's own BTF.
traced file nullb0 --btf /sys/kernel/btf/vmlinux -- dd if=/dev/nullb0 of=/dev/null bs=4096 count=300 iflag=direct
