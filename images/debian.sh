# shellcheck shell=bash
# Downloads Debian packages for the target architecture without installing them; for
# images/compile.sh.

apt_folder=$PWD/target/apt-$architecture

# Runs apt-get as the calling user, because apt's own user may not write here. For another
# architecture, apt gets a configuration that knows only that one, with its own package lists, so
# that this machine's stay unchanged.
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

# download FOLDER PACKAGE…: downloads those that are missing.
download() {
    local folder=$1 name missing=()
    shift
    for name in "$@"; do
        compgen -G "$folder/${name}_*.deb" >/dev/null || missing+=("$name")
    done
    [ ${#missing[@]} != 0 ] || return 0
    mkdir -p "$folder"
    # apt-get downloads to the current folder. The package lists may be missing or older than the
    # mirror.
    (cd "$folder" && apt_get download "${missing[@]}") || { apt_get update && (cd "$folder" && apt_get download "${missing[@]}"); }
}
