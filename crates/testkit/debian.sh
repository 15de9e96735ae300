# shellcheck shell=bash
# How servers for tests, and an image, are built from Debian's packages; to be sourced after cache.sh by scripts that have
# perhaps set `suite` and, before anything is downloaded, `work` (a folder of their own).
#
#   DEBIAN_MIRROR     where the packages come from (as the machine's apt has it by default)

suite=${suite:-bookworm}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-}

# find_mirror: the machine's own apt knows one.
find_mirror() {
    [ -e "$keyring" ] || complain "needs $keyring: apt-get install debian-archive-keyring"
    # shellcheck disable=SC2016 # a field of apt
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Component: main' | sed -n 1p)
    [ -n "$mirror" ] || complain "apt of this machine knows no mirror of Debian: DEBIAN_MIRROR can name a mirror"
}

# old_go: lets Go compile a world before modules. All that is needed lies in GOPATH, and nothing else is downloaded.
old_go() { export GO111MODULE=off GOPATH=$work/go GOCACHE=$work/cache GOTMPDIR=$work/tmp GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0; }

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
