# `biopsy check --self-test` on a drive with several queues: all invariants of a measurement hold.
. /guest/lib.sh

uname -r >release
status=0
biopsy check --self-test -d nvme0n1 --json >check.json 2>check.err || status=$?
echo "$status" >check.exit
biopsy check --self-test -d nvme0n1 --for 500ms || true
