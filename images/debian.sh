# shellcheck shell=bash
# Debian's packages for the architecture that is compiled for, without installing them; for images/compile.sh.

apt_folder=$PWD/target/apt-$architecture

# As who calls it: apt's own user may not write here. For another architecture by an apt that knows no other, with lists of its own: this
# machine's stay as they are.
apt_get() {
    local options=(-qq -o "APT::Sandbox::User=$(id -un)") own=$apt_folder
    if [ -n "$cross" ]; then
        mkdir -p "$own"/{lists,archives}/partial
        apt-get "${options[@]}" -o "APT::Architecture=$architecture" -o "APT::Architectures::=$architecture" -o Dir::State::status=/dev/null \
            -o "Dir::State::lists=$own/lists" -o "Dir::Cache=$own" "$@"
    elif [ "$1" = update ]; then
        as_root apt-get "${options[@]}" "$@"
    else
        apt-get "${options[@]}" "$@"
    fi
}

# download FOLDER PACKAGE…: those that are not there yet.
download() {
    local folder=$1 name missing=()
    shift
    for name in "$@"; do
        compgen -G "$folder/${name}_*.deb" >/dev/null || missing+=("$name")
    done
    [ ${#missing[@]} != 0 ] || return 0
    mkdir -p "$folder"
    # apt-get leaves them in the current folder. The lists may be older than what the mirror has, or not there.
    (cd "$folder" && apt_get download "${missing[@]}") || { apt_get update && (cd "$folder" && apt_get download "${missing[@]}"); }
}
