# shellcheck shell=bash
# How servers for tests, and an image, are built from Debian's packages; to be sourced by scripts that have set `name` (theirs, for
# what is said), perhaps `suite` and, before anything is downloaded, `work` (a folder of their own).

suite=${suite:-bookworm}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-}
# shellcheck disable=SC2034 # not everyone who sources this keeps something there
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdi-workers

complain() {
    printf '%s: %s\n' "$name" "$*" >&2
    exit 1
}

# step NAME ADVICE COMMAND…: runs the command; what it says is shown only if it fails.
step() {
    local step=$1 advice=$2 code=0
    shift 2
    echo "$name: $step" >&2
    # In a subshell of its own, where `set -e` holds also for functions.
    set +e
    (
        set -e
        "$@"
    ) >"$work/log" 2>&1
    code=$?
    set -e
    if [ "$code" != 0 ]; then
        tail --lines=30 "$work/log" >&2
        complain "could not $step; $advice"
    fi
}

# needs TOOL:PACKAGE…: these, and a mirror; the machine's own apt knows one.
needs() {
    local tool
    for tool in "$@"; do
        command -v "${tool%:*}" >/dev/null || complain "needs ${tool%:*}: apt-get install ${tool#*:}"
    done
    [ -e "$keyring" ] || complain "needs $keyring: apt-get install debian-archive-keyring"
    # shellcheck disable=SC2016 # a field of apt
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Component: main' | sed -n 1p)
    [ -n "$mirror" ] || complain "apt of this machine knows no mirror of Debian: DEBIAN_MIRROR can name a mirror"
}

# private_apt KIND FOLDER ARGUMENT…: an apt of our own in an empty folder, which knows the deb or deb-src of the suite; the machine's
# configuration stays as it is.
private_apt() {
    local kind=$1 folder=$2 options
    shift 2
    options=(--quiet -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State=$work/apt" -o "Dir::Cache=$work/apt" -o "APT::Sandbox::User=$(id -un)")
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$folder"
    echo "$kind [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
    apt-get "${options[@]}" update --error-on=any
    # What is downloaded lies in the current folder.
    cd "$folder"
    apt-get "${options[@]}" "$@"
}
