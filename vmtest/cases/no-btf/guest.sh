# A kernel without BTF: one sentence reports it, and `check` explains the consequences. The BTF is
# hidden for this test.
. /guest/lib.sh

cp /sys/kernel/btf/vmlinux /tmp/kernel.btf
trap 'umount /sys/kernel/btf; rm /tmp/kernel.btf' EXIT
mount -t tmpfs tmpfs /sys/kernel/btf
biopsy check >check.txt
biopsy check --json >check.json
status=0
biopsy latency -d nvme0n1 --for 1s >latency.out 2>latency.err || status=$?
echo "$status" >latency.exit
biopsy devices --json >devices.json
# A BTF file replaces it.
uname -r >release
biopsy --btf /tmp/kernel.btf check --json >file.json
traced file nvme0n1 --btf /tmp/kernel.btf -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
traced ring nvme0n1 --btf /tmp/kernel.btf -- biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --runtime 1s --json -o load.json
echo 128 >/sys/block/nvme0n1/queue/max_sectors_kb
traced split nvme0n1 --btf /tmp/kernel.btf -- dd if=/dev/nvme0n1 of=/dev/null bs=1M count=20 iflag=direct
lines lines nvme0n1 --btf /tmp/kernel.btf -- dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=300 iflag=direct
status=0
biopsy latency --btf /bin/busybox -d nvme0n1 --for 1s 2>wrong.err || status=$?
echo "$status" >wrong.exit
