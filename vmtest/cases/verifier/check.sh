# A fifth more than recorded is a failure; `vmtest/run --record` writes the file anew. What a kernel refuses is
# recorded as that: compare-and-swap on 5.10, and there a module's event.
jq -r --arg kernel "$BIOPSY_VM_KERNEL" '[$kernel, .object, .program, .instructions // "refused"] | join(" ")' \
    programs.json >found
[ "$(wc -l <found)" -gt 15 ] || fail "too few programs: $(cat found)"
recorded=$BIOPSY_VM_TREE/verifier.txt
if [ -n "${BIOPSY_VM_RECORD-}" ]; then
    # By kernel as in kernels.txt, in the order of the objects.
    { grep '^#' "$recorded" && grep -v "^#\|^$BIOPSY_VM_KERNEL " "$recorded" | cat - found | sort -s -V -k1,1; } >new
    cp new "$recorded"
fi
awk -v kernel="$BIOPSY_VM_KERNEL" '
    FNR == NR { if ($1 == kernel) had[$2 " " $3] = $4; next }
    {
        name = $2 " " $3
        if (!(name in had)) problem = name " is not recorded: vmtest/run --record"
        else if (($4 == "refused") != (had[name] == "refused")) problem = name ": " had[name] " before, " $4 " now"
        else if ($4 != "refused" && $4 > had[name] * 1.2) problem = name " grew from " had[name] " to " $4 " instructions"
        if (problem) print kernel " " problem
        bad += problem != ""
        problem = ""
        delete had[name]
    }
    END {
        for (name in had) { print kernel " " name " is recorded and gone: vmtest/run --record"; bad++ }
        exit bad > 0
    }' "$recorded" found || fail "$(jq -c 'select(.reason) | {object, program, reason}' programs.json)"
