# Functions for the host half of a case: sourced by check.sh, in the folder that the guest has filled.
# shellcheck shell=bash disable=SC2016 # the variables in quotes are jq's

# Ends the check with a reason.
fail() {
    echo "$*"
    exit 1
}

# expect FILE FILTER [NAME VALUE]...: the jq filter must give true. Its variables are numbers or other JSON.
expect() {
    local file=$1 filter=$2 arguments=()
    shift 2
    [ -s "$file" ] || fail "$file is missing or empty"
    while [ $# -gt 0 ]; do
        arguments+=(--argjson "$1" "$2")
        shift 2
    done
    jq -e "${arguments[@]}" "$filter" "$file" >/dev/null && return
    # Without the buckets of the histograms, which are too long to read.
    fail "$file: not true: ${claim:-$filter} $(printf '%.80s ' "${arguments[@]}")in" \
        "$(jq -c 'del(.. | .buckets? // empty)' "$file" | head -c 3000)"
}

# exited NAME STATUS: the exit status that guest.sh left in NAME.exit.
exited() {
    [ "$(cat "$1.exit")" -eq "$2" ] && return
    # A test program prints the failed assertion above its last lines.
    local said
    said=$(grep -A 1 'panicked at' "$1.err" || tail -n 3 "$1.err")
    fail "$1 ended with status $(cat "$1.exit"), not $2: $(tr '\n' ' ' <<<"$said")"
}

# device NAME DISK FILTER [NAME VALUE]...: the filter must hold for DISK in the view NAME.json. In it, $view is the
# whole view, and `kernel` the kernel's bounds [min, max] over all classes of I/O.
device() {
    local view=$1 disk=$2 filter=$3 claim="$2: $3"
    shift 3
    expect "$view.json" 'def total: if type == "object" then add else . end;
        def kernel: [.kernel_ios_min, .kernel_ios_max | total];
        . as $view | [.devices[] | select(.name == "'"$disk"'")] | length == 1 and (.[0] | '"$filter"')' "$@"
}

# trusted NAME DISK: the view has lost nothing, and its count is the kernel's (NAME.ios, written by `traced`).
trusted() {
    exited "$1" 0
    expect "$1.json" '.lost.ios == 0 and .lost.events == 0'
    device "$1" "$2" '.ios == $ios and .ios > 0 and kernel == [$ios, $ios]' ios "$(cat "$1.ios")"
}

# accounted NAME DISK [COUNT]: the I/Os that the view counted and those that it reports as lost add up to the kernel's
# count (NAME.ios, or COUNT). All losses must be runs of a program that the kernel skipped and counted: on 7.x, a task
# can be preempted inside a program (case `preempted`). The view may exit with status 4: whether the loss is too large
# to trust depends on the host's load.
accounted() {
    [ "$(cat "$1.exit")" -eq 0 ] || exited "$1" 4
    device "$1" "$2" '.ios > 0 and .ios + .lost_ios == $ios and kernel == [$ios, $ios]' ios "${3:-$(cat "$1.ios")}"
    expect "$1.json" '.lost.ios == ([.devices[].lost_ios] | add) and .lost.ios <= .lost.probes.latency.missed'
    case $(cat release) in
    5.* | 6.*) expect "$1.json" '.lost.probes.latency.missed == 0' ;;
    esac
}

# joined NAME DISK OPERATIONS [OP]: the reads (or OP) are this many operations, followed from their entry to the return
# of their result, and their stages add up. Exception: runs that the kernel skipped (7.x, where a task can be preempted
# inside a program: case `preempted`).
joined() {
    device "$1" "$2" ".ops.${4:-read}"' | (.operations - $n | fabs) + .ios_without_operation + (.not_covered.reap // 0)
        <= $view.lost.probes.latency.missed' n "$3"
    device "$1" "$2" ".ops.${4:-read}"' | ([.stages[].sum_ns] | add) == .total.sum_ns'
}

# referee FILE COUNT: the median time from issue to completion in ns, from the kernel's own trace written by
# `recorded`. It must have exactly COUNT I/Os.
referee() {
    sed -n 's/.* \([0-9.]*\): block_rq_\([a-z]*\): .* \([0-9]*\) + [0-9]* .*/\1 \2 \3/p' "$1" |
        awk '$2 == "issue" { issued[$3] = $1 } $2 == "complete" { printf "%.0f\n", ($1 - issued[$3]) * 1e9 }' |
        sort -n | awk -v n="$2" '{ all[NR] = $1 } END { if (NR != n) exit 1; print all[int(n / 2)] }' ||
        fail "the kernel's trace does not have the $2 I/Os: $(wc -l <"$1") lines" >&2
}

# unchanged RECORDS FOUND FACTOR: lines of both files are `KERNEL A B COUNT ...`. No count of this kernel may exceed
# FACTOR times the recorded one, and `refused` instead of a count must stay so. With `vmtest/run --record`, FOUND
# becomes the record, sorted like kernels.txt.
unchanged() {
    if [ -n "${BIOPSY_VM_RECORD-}" ]; then
        { grep '^#' "$1" && grep -v "^#\|^$BIOPSY_VM_KERNEL " "$1" | cat - "$2" | sort -s -V -k1,1; } >new
        cp new "$1"
    fi
    awk -v kernel="$BIOPSY_VM_KERNEL" -v factor="$3" '
        FNR == NR { if ($1 == kernel) had[$2 " " $3] = $4; next }
        {
            name = $2 " " $3
            if (!(name in had)) problem = name " is not recorded"
            else if (($4 == "refused") != (had[name] == "refused")) problem = name ": " had[name] " before, " $4 " now"
            else if ($4 != "refused" && $4 > had[name] * factor) problem = name " grew from " had[name] " to " $4 " instructions"
            if (problem) print kernel " " problem
            bad += problem != ""
            problem = ""
            delete had[name]
        }
        END {
            for (name in had) { print kernel " " name " is recorded and gone"; bad++ }
            exit bad > 0
        }' "$1" "$2"
}
