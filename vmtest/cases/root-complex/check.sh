for name in shared own; do exited "$name" 0; done
# The emulator limits each drive to 40 MB/s, and the first two to 40 MB/s together.
rates() { # NAME TOGETHER
    expect "$1.json" '.scaling | (.drives | length == 2) and all(.drives[]; .alone_bytes_per_second | . > 36e6 and . < 44e6)
        and ([.drives[].together_bytes_per_second] | add | . > 0.9 * '"$2"' and . < 1.1 * '"$2"')'
}
rates shared 40e6
rates own 80e6
# Emulated links run at 2.5 GT/s x1: 210 MB/s.
expect shared.json '[.findings[] | select(.id == "root-complex-shared") | .subject, .numbers.drives,
    (.numbers.together_percent | . > 40 and . < 60), (.numbers.nearest_link_percent < 30)] == ["pci0000:00", 2, true, true]'
expect own.json '[.findings[].id] | index("root-complex-shared") == null'
# The rule was evaluated in both cases.
for name in shared own; do
    expect "$name.json" '[.not_examined[].what | select(contains("pci0000:00"))] == []'
done
grep -q 'Alone and all at once' shared.html || fail 'the report does not show the drives'
