# 1 MiB reads on a drive with a maximum of 128 KiB per request: each becomes
# eight I/Os.
. /guest/lib.sh

limit=/sys/block/nvme0n1/queue/max_sectors_kb
usual=$(cat "$limit")
trap 'echo "$usual" >"$limit"' EXIT
echo 128 >"$limit"
counted nvme0n1 ios biopsy diagnose /dev/nvme0n1 --bs 1m --iodepth 4 --runtime 3s -o report.html --json >diagnose.json
