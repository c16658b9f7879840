[ "$(tr '\n' ' ' <nodes)" = "0-1 2-3 " ] || fail "the machine has other nodes: $(cat nodes)"
[ "$(cat drive)" = 1 ] || fail "the drive is at node $(cat drive)"
for name in devices usual local remote sweep near named memory; do
    exited "$name" 0
done
expect devices.json '[.devices[] | select(.name == "nvme0n1") | .numa_node] == [1]'
# QEMU's link, with packets of 128 bytes plus 24 bytes each, and the 65 vectors of its drives.
expect devices.json '[.devices[] | select(.name == "nvme0n1") | .root_complex, .msix_vectors,
    (.links[] | .function, .port, (.link | .speed_gts, .width, .payload_bytes, .usable_bytes_per_second[]))]
    == ["pci0000:80", 65, "0000:81:00.0", "0000:80:00.0", 2.5, 1, 128, 210526316, 210526316]'
# One thread per CPU, on the drive's node unless the other one is selected.
bound() { # NAME CPUS NODE
    expect "$1.json" '([.jobs[].cpu] | sort) == '"$2"' and all(.jobs[]; .node == '"$3"' and .ios > 0)'
}
bound usual '[2, 3]' 1
bound local '[2, 3]' 1
bound remote '[0, 1]' 0
expect sweep.json '[.sweep.points[] | [.values.numa, (.jobs[] | .node, (.cpu < 2), .ios > 0)]]
    == [["local", 1, false, true], ["remote", 0, true, true]]'

# The CPUs of the threads, and the node of the only private memory as large as the buffers: 256 of 16
# KiB.
seen() { # NAME CPUS BUFFERS_NODE
    grep -qxE "load-0=($2)" "$1.threads" || fail "$1: the threads are $(tr '\n' ' ' <"$1.threads")"
    local pages on
    # In pages of 4 KiB, or one to three huge pages; without those of the executable.
    pages=$(awk '!/ file=/ { size = 4; for (i = 1; i <= NF; i++) if ($i ~ /^kernelpagesize_kB=/) { split($i, s, "="); size = s[2] }
        for (i = 1; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split($i, n, "="); if (n[2] * size >= 4096) print n[1] }
    }' "$1.maps" | sort -u)
    on=$(echo "$pages" | tr '\n' ' ')
    [ "$on" = "N$3 " ] || fail "$1: memory as large as the buffers lies on ${on:-no node}: $(cat "$1.maps")"
}
seen near '2|3' 1
seen named '0-1' 0
seen memory '0-1' 1

# A reader on the other node gets the finding, and one on the drive's node does not.
for name in from-far from-near; do exited "$name" 0; done
expect from-far.json '[.findings[] | select(.id == "numa-remote") | .subject, .severity] == ["nvme0n1", "warning"]'
expect from-near.json '[.findings[].id] | index("numa-remote") == null'
# Interrupts arrived on the node of the submitting CPUs.
expect from-far.json '[.interrupts.vectors[] | select(.queue != null and .interrupts > 0) | .by_cpu[].cpu] | all(. < 2)'
expect from-near.json '[.interrupts.vectors[] | select(.queue != null and .interrupts > 0) | .by_cpu[].cpu] | all(. >= 2)'
