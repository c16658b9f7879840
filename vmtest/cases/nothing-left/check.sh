cmp before after || fail "before: $(xargs <before), after: $(xargs <after)"
[ "$(head -n1 during)" -gt "$(head -n1 before)" ] || fail "no program was attached"
