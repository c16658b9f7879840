for view in reads writes; do
    trusted "$view" nullb0
    device "$view" nullb0 '.merges == $merges' merges "$(cat "$view.merges")"
done
[ "$(cat reads.merges)" -gt 100 ] || fail "only $(cat reads.merges) reads were merged"
# The generator first checks with a read of 512 bytes whether the disk can be
# read.
device reads nullb0 '.ops.read.bytes == $ios * 4096 + 512' ios "$(jq .ios load.json)"
device writes nullb0 '.ops.write.bytes == 64 * 1048576'
[[ $(cat release) != 5.10.* ]] || exit 0
joined reads nullb0 $(($(jq .ios load.json) + 1))
