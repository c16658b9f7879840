# Which fields of bpf/kernel.h and bpf/compat.h this kernel has: bpftool reduces the kernel's types to
# those that the objects' relocations found.
. /guest/lib.sh

mkdir objects
biopsy check --objects objects
for object in objects/*.bpf.o; do
    bpftool gen min_core_btf /sys/kernel/btf/vmlinux reduced "$object"
    bpftool btf dump file reduced >>reduced.txt
    rm reduced
done
rm -r objects
