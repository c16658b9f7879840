# timeout: 400
# The tests of the load's write protection, tests/suite/guard.rs, on a separate machine: with layers, swap, mounts
# and an NVMe drive that other machines cannot offer.
. /guest/lib.sh

[ -x /bin/suite ] || fail "no test program in the guest: cargo test --no-run --test suite"
modprobe loop max_loop=4
modprobe dm_mod
modprobe crc32c_generic || true
modprobe ext4
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
BIOPSY_VM=1 /bin/suite --nocapture --test-threads=1 guard:: >tests 2>&1 || true

# The same drive behind a multipath head, with a hidden path.
modprobe -r nvme
modprobe -r nvme_core
modprobe nvme_core multipath=Y
modprobe nvme
wait_for [ -b /dev/nvme0n1 ]
ls /sys/block >disks
BIOPSY_VM=1 /bin/suite --nocapture --exact guard::a_namespace_and_its_generic_device_are_one >multipath 2>&1 || true
nvme_driver
umount /dev/shm
