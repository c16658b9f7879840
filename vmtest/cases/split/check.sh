expect diagnose.json '.findings | any(.id == "split-io" and .subject == "nvme0n1")'
# Found by its value: which of the numbers is the factor is the finding's own affair.
expect diagnose.json '.findings[] | select(.id == "split-io") | any(.numbers[]; . > 7.95 and . < 8.05)'
grep -q 'split-io' report.html || fail "the report does not hold the finding"
