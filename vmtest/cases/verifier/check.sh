# A fifth more than recorded is a failure; `vmtest/run --record` writes the file anew. What a kernel refuses is
# recorded as that: compare-and-swap on 5.10, and there a module's event.
jq -r --arg kernel "$BIOPSY_VM_KERNEL" '[$kernel, .object, .program, .instructions // "refused"] | join(" ")' \
    programs.json >found
[ "$(wc -l <found)" -gt 15 ] || fail "too few programs: $(cat found)"
unchanged "$BIOPSY_VM_TREE/verifier.txt" found 1.2 ||
    fail "vmtest/run --record accepts it; $(jq -c 'select(.reason) | {object, program, reason}' programs.json)"
