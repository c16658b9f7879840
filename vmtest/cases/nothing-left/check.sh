cmp before after || fail "before: $(xargs <before), after: $(xargs <after)"
[ "$(head -n1 during)" -gt "$(head -n1 before)" ] || fail "no program was attached"
# All five stages have programs; on 5.10 only those of the block layer.
programs=$(head -n1 during) links=$(sed -n 3p during)
least=12
[[ $(cat release) != 5.10.* ]] || least=8
[ "$((programs - $(head -n1 before)))" -ge $least ] || fail "only $programs programs were there"
[ "$((links - $(sed -n 3p before)))" -ge $least ] || fail "only $links links were there"
