# Three readers of a disk with 100 ms per read, and one sleeping process: the states of all are known.
# append: time=virtual
. /guest/lib.sh

uname -r >release
null_disk nullb0 completion_nsec=2000000
modprobe dm_delay
upper=$(mapped delay delay nullb0 100)
echo "$upper" >name
readers=
for _ in 1 2 3; do
    dd if="/dev/$upper" of=/dev/null bs=4096 iflag=direct 2>/dev/null &
    readers="$readers $!"
done
sleep 1000 &
sleeper=$!
usleep 500000

status=0
biopsy threads -d "$upper" -G comm,state,syscall,wchan,device --for 5s --json -o threads.json 2>threads.err || status=$?
echo "$status" >threads.exit
# The wait channels that the kernel reports, several times: between two reads a reader waits nowhere.
for _ in 1 2 3 4 5 6 7 8 9; do
    for reader in $readers; do
        cat "/proc/$reader/wchan" && echo
        usleep 20000
    done
done >wchan
status=0
biopsy threads -p "$sleeper" --all --for 2s --json -o sleeper.json 2>sleeper.err || status=$?
echo "$status" >sleeper.exit
cut -d ' ' -f 1 "/proc/$sleeper/syscall" >number
cat "/proc/$sleeper/wchan" >place
# An unprivileged user can only read the files of /proc.
status=0
/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
    biopsy threads -p "$sleeper" --all --for 2s --json >files.json 2>files.err || status=$?
echo "$status" >files.exit
biopsy check --json >check.json
# shellcheck disable=SC2086 # several
kill $readers "$sleeper"
wait || true
dmsetup remove --noudevsync delay
