# shellcheck shell=bash
# Compiles and packs programs for images and releases, so that twice the same sources are twice the same bytes; to be sourced by
# scripts that have sourced ci/steps.sh and may have set `target`.

# target, if set, may be another machine's: aarch64-unknown-linux-gnu, s390x-unknown-linux-gnu. Debian's cross compilers serve then.
native=$(rustc --print host-tuple)
target=${target:-$native}
export CARGO_BUILD_TARGET=$target
static_name=${target^^}
static_name=${static_name//-/_}

# What the names of its compiler, linker and strip begin with; nothing for those of this machine.
cross=''
if [ "$target" != "$native" ]; then
    cross=${target/-unknown/}-
    export "CARGO_TARGET_${static_name}_LINKER=${cross}gcc" "CC_${target//-/_}=${cross}gcc"
fi
# Kernels of arm64 have pages of 4, 16 or 64 KiB, and jemalloc ends where they are larger than the ones that it was compiled for.
case $target in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac

# The name that Debian and images have for the target, and what compiles for it.
case $target in
    x86_64-unknown-linux-gnu) architecture=amd64 ;;
    aarch64-unknown-linux-gnu) architecture=arm64 ;;
    s390x-unknown-linux-gnu) architecture=s390x ;;
    *)
        echo "$target: nothing can be built for it yet" >&2
        exit 2
        ;;
esac
compiler=(gcc libc6-dev)
[ -z "$cross" ] || compiler=("gcc-$(tr _ - <<<"${cross%-}")" "libc6-dev-$architecture-cross")

. images/debian.sh

# Where each program is in the workspace.
declare -A package=(
    [cdi-importer]=importer [cdi-uploadserver]=uploadserver [cdi-uploadproxy]=uploadproxy [cdi-cloner]=cloner [kubectl-cdi]=kubectl-cdi
    [cdi-containerimage-server]=containerimage-server [cdi-image-size-detection]=imagetools [cdi-source-update-poller]=poller [qemu-img]=imagetools
)

# The glibc of another architecture that programs are linked with. The one of Debian's cross compilers is as old as the suite: it has no
# fixes of security.
# A relative path, which the linker gets like this: what flags say is part of the names of symbols.
glibc=target/glibc-$architecture

glibc_version() {
    if [ -n "$cross" ]; then dpkg-deb --field "$glibc"/libc6-dev_*.deb Version; else dpkg-query --show --showformat '${Version}' libc6-dev; fi
}

# link_with_glibc: downloads it, and has the linker look there first.
link_with_glibc() {
    local -n flags=CARGO_TARGET_${static_name}_RUSTFLAGS
    download "$glibc" libc6-dev
    dpkg-deb --extract "$glibc"/libc6-dev_*.deb "$glibc/root"
    export "CARGO_TARGET_${static_name}_RUSTFLAGS"
    flags+=" -C link-arg=-B$glibc/root/usr/lib/${cross%-}"
}

# packages_of PROGRAM…: each once.
packages_of() { for program in "$@"; do echo "${package[$program]}"; done | sort --unique; }

# programs_folder PROFILE: where compiled programs are.
programs_folder() { echo "${CARGO_TARGET_DIR:-target}/$target/${1/#dev/debug}"; }

# same_everywhere: flags with which nothing of this machine's folders is in the programs, in Rust's part or in that of C, whose build
# scripts compile below the folder of cargo and of the target.
same_everywhere() {
    local cargo=${CARGO_HOME:-$HOME/.cargo} built names name
    local -n flags=CARGO_TARGET_${static_name}_RUSTFLAGS
    built=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
    # The last that fits counts. The standard library is where its sources are installed, if they are.
    names=("$PWD=/cdi-workers" "$built=/cdi-workers/target" "$cargo=/cargo" "$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc")
    export "CARGO_TARGET_${static_name}_RUSTFLAGS"
    for name in "${names[@]}"; do flags+=" --remap-path-prefix=$name"; done
    export "CFLAGS_${target//-/_}=${names[*]/#/-ffile-prefix-map=}"
}

# compile PROFILE PROGRAM…: all at once. Which features of a library are compiled depends on who else is, and so do the bytes.
compile() {
    local profile=$1 chosen=() name
    shift
    for name in "$@"; do chosen+=(--bin "$name" --package "${package[$name]}"); done
    needs "${compiler[@]}"
    [ -z "$cross" ] || rustup target add "$target"
    if [ "$profile" != dev ]; then
        CDI_WORKERS_COMMIT=$(git describe --always --dirty --abbrev=12 --exclude '*')
        export CDI_WORKERS_COMMIT
        same_everywhere
        [ -z "$cross" ] || link_with_glibc
    fi
    cargo build --locked --profile "$profile" "${chosen[@]}"
}

# same_tar ARCHIVE ARGUMENT…: a tar archive in which nothing is of this machine, its users or this hour.
same_tar() {
    local archive=$1
    shift
    tar --create --file "$archive" --format gnu --sort name --mtime "@${SOURCE_DATE_EPOCH:-0}" --owner 0 --group 0 --numeric-owner \
        --mode u=rwX,go=rX "$@"
}
