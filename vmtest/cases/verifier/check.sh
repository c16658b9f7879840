# A count that exceeds the record by more than a fifth is a failure; `vmtest/run --record` updates the record.
# Programs that a kernel refuses are recorded as refused: compare-and-swap on 5.10, and a module's event there.
jq -r --arg kernel "$BIOPSY_VM_KERNEL" '[$kernel, .object, .program, .instructions // "refused"] | join(" ")' \
    programs.json >found
[ "$(wc -l <found)" -gt 15 ] || fail "too few programs: $(cat found)"
unchanged "$BIOPSY_VM_TREE/verifier.txt" found 1.2 ||
    fail "vmtest/run --record accepts it; $(jq -c 'select(.reason) | {object, program, reason}' programs.json)"
