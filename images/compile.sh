# shellcheck shell=bash
# Compiles and packs programs for images and releases reproducibly: the same sources give the same
# bytes. To be sourced by scripts that have sourced ci/steps.sh and may have set `target`.

# `target` may be another machine's: aarch64-unknown-linux-gnu, s390x-unknown-linux-gnu or, for
# kubectl-cdi, x86_64-pc-windows-gnu. Debian's cross compilers are then used.
native=$(rustc --print host-tuple)
target=${target:-$native}
export CARGO_BUILD_TARGET=$target
static_name=${target^^}
static_name=${static_name//-/_}

# Prefix of the names of compiler, linker and strip; empty for this machine's own.
cross=''
if [ "$target" != "$native" ]; then
    cross=${target/-unknown/}-
    case $target in *-windows-gnu) cross=${target%%-*}-w64-mingw32- ;; esac
    export "CARGO_TARGET_${static_name}_LINKER=${cross}gcc" "CC_${target//-/_}=${cross}gcc"
fi
# arm64 kernels use pages of 4, 16 or 64 KiB. jemalloc aborts if they are larger than those it was
# compiled for.
case $target in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac

# The target's name in Debian and in images, and its compiler packages.
case $target in
    x86_64-unknown-linux-gnu) architecture=amd64 ;;
    aarch64-unknown-linux-gnu) architecture=arm64 ;;
    s390x-unknown-linux-gnu) architecture=s390x ;;
    x86_64-pc-windows-gnu) architecture=windows ;;
    *)
        echo "$target: nothing can be built for it yet" >&2
        exit 2
        ;;
esac
# jemalloc is built with make.
compiler=(gcc libc6-dev make)
case $target,$cross in
    *-windows-gnu,*) compiler=(gcc-mingw-w64-x86-64 make) ;;
    *,?*) compiler=("gcc-$(tr _ - <<<"${cross%-}")" "libc6-dev-$architecture-cross" make) ;;
esac

. images/debian.sh

# Labels of images and the provenance of releases name these.
# shellcheck disable=SC2034 # used by scripts that source this
source_url=${CDI_WORKERS_SOURCE:-https://example.org/cdi-workers} vendor='cdi-workers maintainers'

# The workspace package of each program.
declare -A package=(
    [cdi-importer]=importer [cdi-uploadserver]=uploadserver [cdi-uploadproxy]=uploadproxy [cdi-cloner]=cloner [kubectl-cdi]=kubectl-cdi
    [cdi-containerimage-server]=containerimage-server [cdi-env-extractor]=env-extractor [cdi-importer-tools]=importer-tools
)

# The glibc for other architectures. That of Debian's cross compilers is as old as the suite and
# lacks security fixes. The path is relative, because linker flags influence the names of symbols.
glibc=target/glibc-$architecture

# libc: prints Debian's source package of the C library that is linked, as NAME=VERSION.
libc() {
    case $architecture,$cross in
        windows,*) dpkg-query --show --showformat 'mingw-w64=${Version}' mingw-w64-x86-64-dev ;;
        *,?*) echo "glibc=$(dpkg-deb --field "$glibc"/libc6-dev_*.deb Version)" ;;
        *) dpkg-query --show --showformat 'glibc=${Version}' libc6-dev ;;
    esac
}

# link_with_glibc: downloads this glibc and makes the linker look there first.
link_with_glibc() {
    local -n flags=CARGO_TARGET_${static_name}_RUSTFLAGS
    download "$glibc" libc6-dev
    dpkg-deb --extract "$glibc"/libc6-dev_*.deb "$glibc/root"
    export "CARGO_TARGET_${static_name}_RUSTFLAGS"
    flags+=" -C link-arg=-B$glibc/root/usr/lib/${cross%-}"
}

# packages_of PROGRAM…: prints their packages, each once.
packages_of() { for program in "$@"; do echo "${package[$program]}"; done | sort --unique; }

# programs_folder PROFILE: prints the folder of the compiled programs.
programs_folder() { echo "${CARGO_TARGET_DIR:-target}/$target/${1/#dev/debug}"; }

# same_everywhere: sets flags that keep this machine's paths out of the programs, both for Rust and
# for C code, which build scripts compile below cargo's folder and the target folder.
same_everywhere() {
    local cargo=${CARGO_HOME:-$HOME/.cargo} built names name
    local -n flags=CARGO_TARGET_${static_name}_RUSTFLAGS
    built=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
    # The last matching prefix counts. The standard library's path is that of its sources, if they
    # are installed.
    names=("$PWD=/cdi-workers" "$built=/cdi-workers/target" "$cargo=/cargo" "$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc")
    export "CARGO_TARGET_${static_name}_RUSTFLAGS"
    for name in "${names[@]}"; do flags+=" --remap-path-prefix=$name"; done
    # Not the target's own variable, which would replace the flags in .cargo/config.toml.
    export "CFLAGS=${names[*]/#/-ffile-prefix-map=}"
}

# compile_with_musl PROFILE PROGRAM: compiles a program that is copied into users' images, with musl:
# 0.4 MB, and 1.15 MB with glibc. Not for programs that read disks, see .cargo/config.toml. Rust's own
# linker needs no cross compiler.
compile_with_musl() {
    local musl=${target/%gnu/musl} setting
    setting=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$musl")
    local -n flags=CARGO_TARGET_${static_name}_RUSTFLAGS
    rustup target add "$musl"
    env "${setting}_LINKER=rust-lld" "${setting}_RUSTFLAGS=$flags" \
        cargo build --locked --profile "$1" --target "$musl" --bin "$2" --package "${package[$2]}"
    install -D "${CARGO_TARGET_DIR:-target}/$musl/$1/$2" "$(programs_folder "$1")/$2"
}

# allocator_features PROFILE OPTION…: prints cargo's option for jemalloc, which gives back the memory
# of uploads, if one of the chosen packages has it.
allocator_features() {
    local name
    for name in uploadserver uploadproxy; do
        [[ $1 = dev || " $* " != *" --package $name "* ]] || echo "--features $name/jemalloc"
    done
}

# compile PROFILE PROGRAM…: compiles all programs together. The features of a library depend on
# what is compiled with it, and so do the bytes.
compile() {
    local profile=$1 chosen=() name small=''
    shift
    for name in "$@"; do
        # Rust has no musl for s390x.
        case $profile,$architecture,$name in
            dev,* | *,s390x,*) chosen+=(--bin "$name" --package "${package[$name]}") ;;
            *,cdi-env-extractor) small=$name ;;
            *) chosen+=(--bin "$name" --package "${package[$name]}") ;;
        esac
    done
    needs "${compiler[@]}"
    [ -z "$cross" ] || rustup target add "$target"
    if [ "$profile" != dev ]; then
        CDI_WORKERS_COMMIT=$(git describe --always --dirty --abbrev=12 --exclude '*')
        export CDI_WORKERS_COMMIT
        same_everywhere
        [ -z "$small" ] || compile_with_musl "$profile" "$small"
        case $target in
            "$native") ;;
            # Otherwise the linker writes the time into the program.
            *-windows-gnu) declare -gx "CARGO_TARGET_${static_name}_RUSTFLAGS+= -C link-arg=-Wl,--no-insert-timestamp" ;;
            *) link_with_glibc ;;
        esac
        # Makes kubectl-cdi 0.5 MB smaller. Debian's linker for arm64 and s390x does not know it.
        case $target in x86_64-*-linux-*) declare -gx "CARGO_TARGET_${static_name}_RUSTFLAGS+= -C link-arg=-Wl,-z,pack-relative-relocs" ;; esac
    fi
    # shellcheck disable=SC2046 # several words
    cargo build --locked --profile "$profile" "${chosen[@]}" $(allocator_features "$profile" "${chosen[@]}")
    case $profile,$target,$* in dist,x86_64-*-linux-*,*cdi-importer*) check_flags "$(programs_folder dist)/cdi-importer" ;; esac
}

# check_flags PROGRAM: fails unless liblzma was compiled with the flags in .cargo/config.toml. Without
# them, which other variables can replace, an import of xz takes 11 to 18 % more time.
check_flags() { nm "$1" | grep ' crc64_arch_optimized$' >/dev/null || { echo "$1 lacks the flags of .cargo/config.toml" >&2 && return 1; }; }

# finish PROGRAM OUTPUT: strips the program, and stores the crates that it is linked from where
# scanners look for them: in the section of `cargo auditable`.
finish() {
    local name=${1##*/} crates=$2.crates address=()
    images/bill-of-materials --audit-data --target "$target" "${package[${name%.exe}]}" >"$crates"
    "${cross}strip" -o "$2" "$1"
    case $target in *-windows-*) address=(--change-section-address ".dep-v0=$(end_of_sections "$2")") ;; esac
    "${cross}objcopy" --remove-section .dep-v0 --add-section ".dep-v0=$crates" --set-section-flags .dep-v0=readonly,data "${address[@]}" "$2"
    rm "$crates"
}

# end_of_sections PROGRAM: prints the next free page. Windows' loader accepts sections only without
# gaps.
end_of_sections() {
    "${cross}objdump" --section-headers --wide "$1" | awk '$1 ~ /^[0-9]+$/ { print "0x" $4, "0x" $3 }' | tail -1 |
        while read -r start bytes; do printf '%#x\n' $(((start + bytes + 0xfff) & ~0xfff)); done
}

# same_tar ARCHIVE ARGUMENT…: makes a tar archive that does not depend on the machine, its users or
# the time.
same_tar() {
    local archive=$1
    shift
    tar --create --file "$archive" --format gnu --sort name --mtime "@${SOURCE_DATE_EPOCH:-0}" --owner 0 --group 0 --numeric-owner \
        --mode u=rwX,go=rX "$@"
}
