# `biopsy check` says what a kernel gives, and keeps what it says: the traces of the other cases.
. /guest/lib.sh

[ ! -e /sys/kernel/btf/nvme_core ] || echo yes >module-btf
uname -r >release
biopsy check --json >check.json
