# shellcheck shell=bash
# How third-party programs for tests are installed once and kept in a cache; to be sourced by scripts in their own folder that have set
# `name` (theirs, for what is said).
#
#   XDG_CACHE_HOME    the programs are kept in cdi-workers/ below this folder (~/.cache by default)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdi-workers

complain() {
    printf '%s: %s\n' "$name" "$*" >&2
    exit 1
}

# needs TOOL:PACKAGE…
needs() {
    local tool
    for tool in "$@"; do
        command -v "${tool%:*}" >/dev/null || complain "needs ${tool%:*}: apt-get install ${tool#*:}"
    done
}

# cached FILE…: prints a name for what is installed as these files beside the script say. Another list, or another way to install it,
# has another name.
cached() { echo "$cache/$name-$(cat build "$@" | sha256sum | cut --characters=-12)"; }

# once MADE RESULT TOOL:PACKAGE…: if MADE exists, prints RESULT and ends the script. Otherwise it sets `work`, an empty folder that is
# removed at the end. Tests that start at once install a program once.
once() {
    found() { [ ! -e "$1" ] || { echo "$2" && exit; }; }
    found "$@"
    needs flock:util-linux "${@:3}"
    mkdir -p "$cache"
    work=$cache/${name// /-}.build
    exec 9>"$work.lock"
    flock 9
    found "$@"
    trap 'rm -rf "$work" "$work.log"' EXIT
    rm -rf "$work"
    mkdir -p "$work"
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
    ) >"$work.log" 2>&1
    code=$?
    set -e
    if [ "$code" != 0 ]; then
        tail --lines=30 "$work.log" >&2
        complain "could not $step; $advice"
    fi
}

# environment FOLDER: makes an environment for Python.
environment() {
    python3 -c 'import ensurepip' 2>/dev/null || complain 'needs venv for Python: apt-get install python3-venv'
    step 'make an environment for Python' 'is the disk full?' python3 -m venv "$1"
}

# pip_install WHAT PYTHON OPTION…: installs packages of PyPI at pinned versions and hashes.
pip_install() {
    step "install $1" 'is PyPI reachable?' "$2" -m pip install --quiet --disable-pip-version-check --require-hashes "${@:3}"
}
