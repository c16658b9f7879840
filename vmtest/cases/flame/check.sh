# share NAME FRAME: the share of stacks with this frame, in tenths of a percent.
share() {
    awk -v frame="$2" '{ n = $NF; all += n; if (index(";" $0, ";" frame ";") || index(";" $0, ";" frame " ")) some += n }
        END { printf "%.0f\n", 1000 * some / all }' "$1.folded"
}
# about NAME FRAME EXPECTED TOLERANCE: all in tenths of a percent.
about() {
    local is
    is=$(share "$1" "$2")
    if [ "$is" -lt $(($3 - $4)) ] || [ "$is" -gt $(($3 + $4)) ]; then
        fail "$1: $2 holds $is tenths of a percent, not $3"
    fi
}
# The sum of the file equals the total of the view.
whole() {
    expect "$1.json" '.total == $sum' sum "$(awk '{ n += $NF } END { printf "%.0f", n }' "$1.folded")"
}

for name in cpu sides io few; do
    exited "$name" 0
    whole "$name"
done
about cpu sixty 600 30
about cpu thirty 300 30
about cpu ten 100 30
# Measured by the thread's own clock.
read -r user kernel <clock
about sides user_side $((1000 * user / (user + kernel))) 30
about sides kernel_side $((1000 * kernel / (user + kernel))) 30
expect sides.json '.what == "on-cpu" and .lost.samples == 0'

# Three of four reads, with 2 ms each, nearly all of which is the disk's time.
about io thrice 750 30
about io once 250 30
[ "$(share io '[device]')" -ge 900 ] || fail "the disk takes $(share io '[device]') tenths of a percent"
expect io.json '.what == "io" and .unit == "nanoseconds" and .measured == 1000 and .lost.ios == 0'
# All of the time in the two functions, except what the program does between its
# reads.
read -r thrice once <passed
expect io.json '.total / $passed | 0.9 < . and . <= 1' passed $((thrice + once))
grep -q 'stacks of 1,000 of 1,000 I/Os' io.json || fail "not all have a stack: $(jq -r .source io.json)"
expect few.json '.measured == 3000 and .lost.ios == 0'
expect few.json '.source | capture("^stacks of (?<n>[0-9,]+) of 3,000") | .n | gsub(","; "") | tonumber | 5 < . and . < 2000'
