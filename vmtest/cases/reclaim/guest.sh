# A machine with 544 MiB whose readers need more page cache than that: kswapd and the readers reclaim, the kernel
# counts both, and the functions of the LRU lists can be followed.
# append: memory=544
# timeout: 400
. /guest/lib.sh

uname -r >release
null_disk nullb0 size=4096 completion_nsec=10000
# Each reader has a large buffer, which takes the memory that background reclaim of the page cache would free.
cat >readers.sh <<'END'
for i in 0 1 2 3 4 5 6 7; do
    dd if=/dev/nullb0 of=/dev/null bs=24M skip=$((i * 6)) count=6 2>dd-$i &
done
wait
END
cat >load.sh <<'END'
cat /proc/vmstat >inner-before
sh readers.sh
cat /proc/vmstat >inner-after
END
grep -c . /proc/zoneinfo >zones
cat /proc/vmstat >outer-before
biopsy locks -d nullb0 --json -o locks.json -- sh load.sh
cat /proc/vmstat >outer-after
cat /proc/vmstat >idle-before
biopsy locks -d nullb0 --for 1s >idle.txt
# The same in a diagnosis, and on an idle machine.
cat /proc/uptime >began
biopsy diagnose -d nullb0 --max-loss 100 --json -o diagnose.html -- sh readers.sh >diagnose.json
cat /proc/uptime >ended
biopsy diagnose --no-load -d nullb0 --max-loss 100 --json -o quiet.html --for 2s >quiet.json
