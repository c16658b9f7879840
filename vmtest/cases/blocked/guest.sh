# The probe's own tests of what blocks a thread, on each kernel: a disk with 2 ms per read, and sleeps of known
# length.
# append: time=virtual
# timeout: 600
. /guest/lib.sh

[ -x /bin/bpf ] || fail "no test program in the guest: cargo test --no-run --test bpf"
uname -r >release
null_disk nullb0 completion_nsec=2000000
status=0
BIOPSY_TEST_HELPER=/bin/biopsy BIOPSY_TEST_DISK=/dev/nullb0 BIOPSY_TEST_DISK_NS=2000000 RUST_BACKTRACE=0 \
    /bin/bpf --nocapture --test-threads=1 \
    sleeps_of_known_length who_sleeps_all_the_time a_disk_of_known_latency >out 2>&1 || status=$?
echo "$status" >blocked.exit
cp out blocked.err
