# The guest half of `make demo-vm`.
# timeout: 120
exec biopsy diagnose /dev/nvme0n1 --runtime 5s -o report.html >/dev/ttyS1 2>&1
