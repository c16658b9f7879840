# Unpacks Debian packages of any suite into the cache, without installing them. Sourced by the scripts
# here.
# shellcheck shell=bash

cache=${XDG_CACHE_HOME:-$HOME/.cache}/biopsy
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

die() {
    echo "setup: $*" >&2
    exit 1
}

# One process at a time: make test and vmtest/run may run in parallel.
lock_cache() {
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock 9
}

# The mirror of suite $1, from the system's own configuration: suites of the security archive have
# another address.
mirror() {
    if [ -n "${BIOPSY_MIRROR:-}" ]; then
        echo "$BIOPSY_MIRROR"
        return
    fi
    local label=Debian
    [[ $1 != *-security ]] || label=Debian-Security
    # shellcheck disable=SC2016 # apt expands these
    apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
        sed -n "s/^$label //p" | head -n1
}

# Runs apt for suite $1 with separate lists and no dpkg status: the system's own stay unchanged, and
# suites of other releases can be read: suite_apt SUITE apt-get|apt-cache ARGUMENT...
suite_apt() {
    local suite=$1 command=$2
    shift 2
    # As root, apt would switch to the user _apt, who cannot enter a private directory.
    APT_CONFIG=$work/$suite/apt.conf "$command" -o APT::Sandbox::User=root -qq "$@"
}

# Downloads the lists of suite $1.
open_suite() {
    local suite=$1 uri
    command -v apt-get >/dev/null || die "suite $suite comes as Debian packages, and this system has no apt"
    [ -n "$work" ] || work=$(mktemp -d)
    [ ! -d "$work/$suite" ] || return 0
    uri=$(mirror "$suite")
    if [ -z "$uri" ] && [ "$(id -u)" -eq 0 ]; then
        # A new machine has no lists yet. Without them apt does not know its mirrors.
        apt-get update -qq || true
        uri=$(mirror "$suite")
    fi
    [ -n "$uri" ] || die "apt knows no Debian mirror: run apt-get update, or set BIOPSY_MIRROR to a mirror's URI"
    mkdir -p "$work/$suite/lists/partial" "$work/$suite/cache/archives/partial" "$work/$suite/parts"
    : >"$work/$suite/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >"$work/$suite/sources.list"
    cat >"$work/$suite/apt.conf" <<END
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
Acquire::Languages "none";
Dir::Etc::SourceList "$work/$suite/sources.list";
Dir::Etc::SourceParts "$work/$suite/parts";
Dir::State::Lists "$work/$suite/lists";
Dir::State::Status "$work/$suite/status";
Dir::Cache "$work/$suite/cache";
END
    suite_apt "$suite" apt-get update || die "suite $suite could not be read from $uri"
}

# Whether folder $1 of the cache was made for request $2.
cached() {
    [ "$(cat "$cache/$1/.from" 2>/dev/null)" = "$2" ]
}

# Unpacks packages into a folder of the cache: unpack FOLDER REQUEST SUITE PACKAGE...
unpack() {
    local into=$cache/$1 request=$2 suite=$3 deb
    shift 3
    echo "setup: fetching $*" >&2
    mkdir -p "$work/debs"
    (cd "$work/debs" && suite_apt "$suite" apt-get download "$@")
    # The folder appears complete or not at all, even if this is interrupted.
    rm -rf "$into" "$into.new"
    mkdir -p "$into.new"
    for deb in "$work"/debs/*.deb; do
        dpkg-deb --extract "$deb" "$into.new"
    done
    rm -rf "$work/debs"
    # Packages of merged-/usr releases have no /lib, where kmod searches the kernel's modules, and
    # contain no index of the modules.
    [ -e "$into.new/lib" ] || ln -s usr/lib "$into.new/lib"
    if [ -d "$into.new/lib/modules" ]; then
        PATH=$PATH:/usr/sbin:/sbin depmod -b "$into.new" "$(ls "$into.new/lib/modules")"
    fi
    echo "$request" >"$into.new/.from"
    mv "$into.new" "$into"
}
