# bpftool silently omits fields that the kernel does not have. vmtest/absent.txt lists these. A field that no
# kernel has is a mistake, or is not used by any program.
members() { # of structs marked CORE, as STRUCT.FIELD; a flavour, ___LIKE_THIS, names the same struct
    awk '/^struct [a-z_0-9]* \{$/ { name = $2; sub(/___.*/, "", name); n = 0 }
        /;$/ && name { sub(/ : [0-9]+;/, ";"); field = $NF; gsub(/[*;]|\[.*\]/, "", field); if ($0 !~ /^}/) fields[n++] = name "." field }
        /^} CORE;$/ { for (i = 0; i < n; i++) print fields[i] }
        /^}/ { name = "" }' "$BIOPSY_VM_TREE"/../bpf/{kernel,compat}.h | sort -u
}
members >wanted
[ "$(wc -l <wanted)" -gt 15 ] || fail "kernel.h cannot be read: $(cat wanted)"
# A member of an unnamed struct or union inside a struct belongs to that struct. Types are numbered from 1 in each
# object.
awk -F"'" '
    function named(id) { return (id in inside) ? named(inside[id]) : name[id] }
    function show(    i) {
        for (i = 0; i < n; i++) if (named(of[i]) && named(of[i]) != "(anon)") print named(of[i]) "." field[i]
        n = 0
        split("", name)
        split("", inside)
    }
    /^\[1\] / { show() }
    /^\[/ { id = substr($1, 2) + 0; keep = / (STRUCT|UNION) /; name[id] = $2 }
    /^\t/ && keep {
        split($3, words, /[ =]/)
        if ($2 == "(anon)") inside[words[3]] = id
        else { of[n] = id; field[n++] = $2 }
    }
    END { show() }' reduced.txt | sort -u >has
comm -23 has wanted >stray
[ ! -s stray ] || fail "relocated, and not in kernel.h or compat.h: $(xargs <stray)"
comm -23 wanted has >lacks
sed -n "s/^$BIOPSY_VM_KERNEL //p" "$BIOPSY_VM_TREE/absent.txt" | sort >known
cmp -s lacks known || fail "absent: $(xargs <lacks), but vmtest/absent.txt says: $(xargs <known)"
# Absent on all kernels that have lines; every kernel has some.
kernels=$(grep -c '^[^#]' "$BIOPSY_VM_TREE/kernels.txt")
dead=$(sed -n 's/^[0-9.]* //p' "$BIOPSY_VM_TREE/absent.txt" | sort | uniq -c | awk -v n="$kernels" '$1 >= n { print $2 }')
[ -z "$dead" ] || fail "no kernel has $dead"
