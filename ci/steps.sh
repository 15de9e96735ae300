# shellcheck shell=bash
# Steps with a heading and the time that they took; to be sourced.

# shellcheck disable=SC2034 # not everyone who sources this says how long all of it took
started=$SECONDS

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# needs PACKAGE…: installs those of Debian's packages that are missing.
needs() {
    local missing=() package
    for package in "$@"; do
        dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
    done
    [ ${#missing[@]} != 0 ] || return 0
    as_root apt-get update -qq
    # RUNLEVEL=1: a web server that is installed for tests must not start serving.
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# step NAME COMMAND…: runs the command; a failure ends the script and says in which step.
step() {
    local name=$1 from=$SECONDS code=0
    shift
    printf '\n=== %s\n' "$name"
    # In a subshell of its own, where `set -e` holds also for functions.
    set +e
    (
        set -e
        "$@"
    )
    code=$?
    set -e
    if [ "$code" != 0 ]; then
        printf '=== %s: FAILED after %d s (exit code %d)\n' "$name" "$((SECONDS - from))" "$code" >&2
        exit "$code"
    fi
    printf '=== %s: %d s\n' "$name" "$((SECONDS - from))"
}
