# Handlers in threads: the hard interrupt only wakes one, and what the thread reaps belongs to that interrupt. Vectors
# that the kernel manages itself stay where their queue's CPUs are, whatever irqaffinity says.
# append: threadirqs irqaffinity=2
. /guest/lib.sh

uname -r >release
before=$(kernel_ios nvme0n1)
status=0
biopsy interrupts -d nvme0n1 --json -o threaded.json -- \
    biopsy load --no-drive-check /dev/nvme0n1 --iodepth 8 --numjobs 2 --runtime 2s 2>threaded.err || status=$?
echo "$status" >threaded.exit
echo $(($(kernel_ios nvme0n1) - before)) >threaded.ios
