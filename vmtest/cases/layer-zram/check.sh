case $(cat release) in
5.10.*)
    exited zram 3
    grep -q 'zram0 has no requests of its own' zram.err || fail "$(cat zram.err)"
    exit 0
    ;;
esac
trusted zram zram0
device zram zram0 '.bio_based and .layers == [] and .ops.write.ios == 100 and .ops.write.bytes == 6553600'
device zram zram0 '.ops.read.operations == $ios + 501' ios "$(jq .ios load.json)"
device zram zram0 '.ops.read | .bio.count == .ios and ([.stages[].sum_ns] | add) == .total.sum_ns'
# A disk without requests can be the target of diagnose and gets a verdict.
expect diagnose.json '.verdict.id != "inconclusive" and ([.findings[].subject] | index("zram0") != null)'
expect diagnose.json '.latency.devices[] | select(.name == "zram0").ops.read.ios > 0'
