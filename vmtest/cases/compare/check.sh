for end in end TERM HUP KILL both; do
    cmp before $end.after || fail "$end: $(diff before $end.after) $(cat $end.err)"
done
! cmp -s before both.left || fail 'the watcher was not killed'
grep -q 'restored the settings of nvme0n1' both.restore || fail "$(cat both.restore)"
exited end 0
expect end.json '(.rounds | length) == 8 and (.metrics | length) > 0 and .end == "planned"'
for signal in TERM HUP; do
    exited $signal 0
    expect $signal.json '.end == "stopped"'
done
[ ! -s left ] || fail "left: $(cat left)"
[ "$(cat gone.exit)" != 0 ] || fail "$(cat gone.out)"
grep -q 'nullb0' gone.err || fail "$(cat gone.err)"
[ ! -s gone.left ] || fail "left: $(cat gone.left)"
for end in io cpu killed; do
    cmp limits.before $end.after || fail "$end: $(diff limits.before $end.after) $(cat $end.err)"
done
expect io.json '.metrics[0].verdict == "worse" and .metrics[0].b > 100 and .metrics[0].b < 300'
expect io.json '.arms[1].settings["cgroup:io.max"] == "rbps=max wbps=max riops=200 wiops=max"'
expect cpu.json '(.arms | length) == 4 and .arms[3].settings["cgroup:/slow:cpu.max"] == "50000 100000"'
