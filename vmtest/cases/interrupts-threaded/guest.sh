# Threaded interrupt handlers: the hard interrupt only wakes a thread, whose completions belong to that interrupt.
# Vectors with managed affinity stay on their queue's CPUs, whatever irqaffinity is.
# append: threadirqs irqaffinity=2
. /guest/lib.sh

uname -r >release
before=$(kernel_ios nvme0n1)
status=0
biopsy interrupts -d nvme0n1 --json -o threaded.json -- \
    biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 2s 2>threaded.err || status=$?
echo "$status" >threaded.exit
echo $(($(kernel_ios nvme0n1) - before)) >threaded.ios
