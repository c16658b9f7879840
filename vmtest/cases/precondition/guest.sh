# Preconditioning of a drive: its content is sampled before it is read, an area is filled and written until the
# IOPS are steady, and the drive's health log is read before and after.
. /guest/lib.sh

# loaded NAME ARGUMENT...: writes NAME.json, NAME.exit and NAME.err.
loaded() {
    name=$1
    shift
    status=0
    biopsy load /dev/nvme0n1 --size 16m "$@" --json -o "$name.json" 2>"$name.err" || status=$?
    echo "$status" >"$name.exit"
}
# sum NAME MIB: the checksum of 4 MiB from this offset.
sum() { dd if=/dev/nvme0n1 bs=1M skip="$2" count=4 iflag=direct 2>/dev/null | sha256sum >"$1.sum"; }

# Zeroes, as read from a new drive.
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
# A load that writes for long enough to give a time series.
loaded written --rw randwrite --runtime 2s --write --destroy-data-on nvme0n1
biopsy load /dev/nvme0n1 --size 16m --runtime 500ms >text.out 2>text.err
# A user who may read the disk but may not send commands to the drive. busybox's setpriv cannot do that.
chmod 644 /dev/nvme0n1
trap 'chmod 600 /dev/nvme0n1' EXIT
status=0
/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
    biopsy load /dev/nvme0n1 --size 16m --runtime 500ms --json >unprivileged.json 2>unprivileged.err || status=$?
echo "$status" >unprivileged.exit
