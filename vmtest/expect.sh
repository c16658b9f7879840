# For the host half of a case: sourced by check.sh, in the folder that the guest half filled.
# shellcheck shell=bash

# Ends the check with a reason.
fail() {
    echo "$*"
    exit 1
}

# expect FILE FILTER [NAME VALUE]...: the jq filter must give true; its variables are numbers or any
# other JSON.
expect() {
    local file=$1 filter=$2 arguments=()
    shift 2
    [ -s "$file" ] || fail "$file is missing or empty"
    while [ $# -gt 0 ]; do
        arguments+=(--argjson "$1" "$2")
        shift 2
    done
    jq -e "${arguments[@]}" "$filter" "$file" >/dev/null ||
        fail "$file: not true: $filter ${arguments[*]} (it holds $(jq -c . "$file" | head -c 600))"
}
