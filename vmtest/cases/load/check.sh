# refused NAME WORD...: one error sentence with these words, and the drive did nothing but reads.
refused() {
    local name=$1 word
    shift
    case $(cat "$name.exit") in 2 | 3) ;; *) fail "$name was not refused: $(cat "$name.exit") $(cat "$name.err")" ;; esac
    [ "$(wc -l <"$name.err")" -eq 1 ] || fail "$name: not one sentence: $(cat "$name.err")"
    for word; do
        grep -qF -- "$word" "$name.err" || fail "$name: no '$word' in: $(cat "$name.err")"
    done
    [ ! -s "$name.json" ] || fail "$name left a result: $(cat "$name.json")"
    read -r _ writes trims <"$name.moved"
    [ $((writes + trims)) -eq 0 ] || fail "$name wrote: $(cat "$name.moved")"
}

# whole NAME: nothing failed, and the figures are consistent.
whole() {
    exited "$1" 0
    expect "$1.json" '.errors == 0 and .failures == [] and .ios > 0'
    expect "$1.json" '. as $all | ([.directions[].bytes] | add) == .bytes and ([.jobs[].ios] | add) == .ios
        and .latency.count == .ios and all(.directions[]; .lat.count == .ios and .short == 0)'
}

# counted NAME: the kernel's counts of the drive equal the load's I/Os plus its verification reads. One
# additional read of each target checks whether it can be read.
counted() {
    local reads writes trims
    read -r reads writes trims <"$1.moved"
    expect "$1.json" '[(.directions.read.ios // 0) + (.verified // 0) + $ahead, .directions.write.ios // 0, .directions.trim.ios // 0]
        == [$r, $w, $t]' r "$reads" w "$writes" t "$trims" ahead "${2:-1}"
}

refused unsaid 'add --write'
refused unnamed '--destroy-data-on nvme0n1'
refused misnamed '--destroy-data-on nvme0n1'
refused readonly readonly
refused held dm-
refused mounted mounted
cmp before.sum after.sum || fail 'the drive changed although every load was refused'

whole whole
counted whole
expect whole.json '.verified == 1024 and (.directions.write | .ios == 1024 and .bytes == 134217728)'
for engine in io_uring libaio psync pvsync2; do
    whole "write-$engine"
    counted "write-$engine"
    expect "write-$engine.json" '.verified == 1024 and .directions.write.ios == 1024'
    whole "mixed-$engine"
    counted "mixed-$engine"
    expect "mixed-$engine.json" '.directions.read.ios / .ios | . > 0.6 and . < 0.8'
done
whole trim
counted trim
expect trim.json '.directions.trim.ios == 256'
for name in trim trim-aio; do
    expect $name.json '.directions.trim | .clat.count == 256 and .clat.min_ns > 0 and .slat == null'
done
whole pairs
counted pairs
# io_size counts both directions, as in fio, and is checked between passes: two passes move 4 MiB of 3.
expect pairs.json '.directions.trim.ios == 512 and .directions.write.ios == 512 and .verified == 512'
whole hole
[ "$(cat kept)" -gt 2000000 ] || fail "only $(cat kept) bytes were kept"
[ "$(cat trimmed)" -eq 0 ] || fail "$(cat trimmed) bytes of what was trimmed are not 0"
whole rate
expect rate.json '.ios > 500 and .ios < 700'

# Features that the kernel lacks are listed if they were requested.
case $(cat release) in
5.10.*) expect whole.json '[.missing[].why] | any(contains("DEFER_TASKRUN")) and any(contains("does not know"))' ;;
6.1.*) expect whole.json '[.missing[].why] | any(contains("NO_SQARRAY")) and (any(contains("DEFER_TASKRUN")) | not)' ;;
*) expect whole.json '[.missing[].why] | all(contains("does not know") | not)' ;;
esac

refused command-block /dev/nvme0n1 /dev/ng
case $(cat release) in
5.10.*)
    refused command /dev/ng0n1
    ;;
*)
    for name in command command-mixed command-trim command-pairs; do
        whole "$name"
    done
    expect command.json '.verified == 512 and .directions.write.ios == 512'
    expect command-trim.json '.directions.trim.ios == 16'
    expect command-pairs.json '.directions.trim.ios == 512 and .directions.write.ios == 512 and .verified == 512'
    refused command-unnamed '--destroy-data-on'
    ;;
esac

# Failures are counted by kind, and the other I/Os stay in the result.
for name in errors stop failing; do
    exited "$name" 4
    [ "$(wc -l <"$name.err")" -eq 1 ] || fail "$name: not one sentence: $(cat "$name.err")"
    grep -q "$(cat broken)" "$name.err" || fail "$name: $(cat "$name.err")"
    expect "$name.json" '[.failures[] | [.direction, .errno]] == [["read", 5]]'
    expect "$name.json" '.failures[0].count == .errors and .latency.count == .ios'
done
expect errors.json '.duration_ns > 1.9e9 and .ios > 50 and (.errors / (.ios + .errors) | . > 0.35 and . < 0.65)'
expect stop.json '.errors >= 1 and .errors <= 4 and .duration_ns < 10e9'
expect failing.json '.ios == 0 and .errors >= 1000 and .duration_ns < 15e9 and .latency.min_ns == null'

exited damaged 4
expect damaged.json '.directions.write.ios == 256 and [.failures[] | [.direction, .errno]] == [["read", 84]]'
expect damaged.json '.errors > 200 and (.jobs[0].mismatch | contains("differs"))'
grep -q 'not read back as written' damaged.err || fail "$(cat damaged.err)"

whole polled
counted polled
expect polled.json '.hipri and .verified == 512 and .directions.write.ios == 512'
whole polled-sync
