# Preparation of a drive: what it holds is looked at before it is read, an area is filled and written until that is
# steady, and the drive's health log is read before and after.
. /guest/lib.sh

# loaded NAME ARGUMENT...: leaves NAME.json, NAME.exit and NAME.err.
loaded() {
    name=$1
    shift
    status=0
    biopsy load /dev/nvme0n1 --size 16m "$@" --json -o "$name.json" 2>"$name.err" || status=$?
    echo "$status" >"$name.exit"
}
# sum NAME MIB: of 4 MiB from there on.
sum() { dd if=/dev/nvme0n1 bs=1M skip="$2" count=4 iflag=direct 2>/dev/null | sha256sum >"$1.sum"; }

# As a drive fresh out of its box answers.
dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=16 oflag=direct 2>/dev/null
loaded fresh --runtime 500ms
loaded blind --runtime 500ms --no-drive-check
sum before 0
loaded unsaid --runtime 500ms --precondition
loaded unnamed --runtime 500ms --precondition --write
sum after 0
sum rest-before 16
loaded prepared --runtime 500ms --write --destroy-data-on nvme0n1 \
    --precondition --precondition-round 250ms --precondition-limit 30s
sum rest-after 16
# A load that writes, long enough for a series.
loaded written --rw randwrite --runtime 2s --write --destroy-data-on nvme0n1
biopsy load /dev/nvme0n1 --size 16m --runtime 500ms >text.out 2>text.err
# Who may read the disk but may not ask the drive; busybox's setpriv does not do that.
chmod 644 /dev/nvme0n1
trap 'chmod 600 /dev/nvme0n1' EXIT
status=0
/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
    biopsy load /dev/nvme0n1 --size 16m --runtime 500ms --json >unprivileged.json 2>unprivileged.err || status=$?
echo "$status" >unprivileged.exit
