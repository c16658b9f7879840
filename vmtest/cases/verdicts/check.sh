first() { # FILE ID...
    local file=$1 answer
    shift
    answer=$(jq -r '.verdict.id' "$file.json") || fail "$(cat "$file.err")"
    [[ " $* " == *" $answer "* ]] || fail "$file: $answer, not $*: $(jq -r '.verdict.sentence' "$file.json")"
}
first shallow queue-depth-too-low
first tags tag-starvation
first held volume-cap device-bound
case $(cat release) in
5.10.*) exit 0 ;;
esac
first throttled throttled
