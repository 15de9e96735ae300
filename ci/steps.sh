# shellcheck shell=bash
# Runs steps with a heading and prints the time that each took, and that of the processor. To be
# sourced.

# shellcheck disable=SC2034 # not everyone who sources this says how long all of it took
started=$SECONDS

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# needs PACKAGE…: installs the missing ones of these Debian packages.
needs() {
    local missing=() package
    for package in "$@"; do
        dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
    done
    [ ${#missing[@]} != 0 ] || return 0
    as_root apt-get update -qq
    # RUNLEVEL=1 prevents a web server that is installed for tests from starting.
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# debian_mirror: prints the mirror that this machine's apt knows.
# shellcheck disable=SC2016 # a field of apt
debian_mirror() { apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Component: main' | sed -n 1p; }

# The processor time of all programs that this script has run so far: fields 16 and 17 of proc(5),
# stat.
processor_seconds() {
    local stat
    read -ra stat <"/proc/$$/stat"
    echo $(((stat[15] + stat[16]) / $(getconf CLK_TCK)))
}

# step NAME COMMAND…: runs the command. A failure ends the script and names the step.
step() {
    local name=$1 from=$SECONDS processor code=0
    processor=$(processor_seconds)
    shift
    printf '\n=== %s\n' "$name"
    # In a subshell of its own, in which `set -e` also applies inside functions.
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
    printf '=== %s: %d s, %d s of processor\n' "$name" "$((SECONDS - from))" "$(($(processor_seconds) - processor))"
}
