# Two more known service times, 20 and 200 µs. The device stage is also compared with the kernel's own
# trace of the same reads, from the issue to the completion.
# append: time=virtual
. /guest/lib.sh

for us in 20 200; do
    null_disk nullb0 completion_nsec=${us}000 submit_queues=1
    record nullb0 block_rq_issue block_rq_complete
    traced "$us" nullb0 -- taskset -c 1 dd if=/dev/nullb0 of=/dev/null bs=4096 count=2000 iflag=direct
    recorded "$us.trace"
    no_null_disks
done
