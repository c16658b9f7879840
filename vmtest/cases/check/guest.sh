# `biopsy check` reports what this kernel supports. The other cases verify that it is true.
. /guest/lib.sh

[ ! -e /sys/kernel/btf/nvme_core ] || echo yes >module-btf
uname -r >release
biopsy check --json >check.json
