expect diagnose.json '.findings | any(.id == "split-io" and .subject == "nvme0n1")'
# Search the value: the name of the number is not tested here.
expect diagnose.json '.findings[] | select(.id == "split-io") | any(.numbers[]; . > 7.95 and . < 8.05)'
grep -q 'split-io' report.html || fail "the report does not hold the finding"
