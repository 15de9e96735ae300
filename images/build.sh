#!/usr/bin/env bash
# Builds the container images as OCI archives, with a bill of materials each, and prints their digests and sizes.
#
#   images/build.sh [OPTION…] [IMAGE…]       IMAGE: importer uploadserver uploadproxy cloner importer-vddk; all without one
#
#   --profile NAME     of cargo: release by default; dev is quick to compile
#   --programs FOLDER  takes compiled programs from there, as CI does with those that its tests have run
#   --target TRIPLE    x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu or s390x-unknown-linux-gnu; this machine's by default
#   --output FOLDER    target/images by default
#
# Writes cdi-IMAGE-ARCH.oci.tar (for podman, skopeo, ctr) and cdi-IMAGE-ARCH.cdx.json (CycloneDX). The same sources, toolchain
# and Debian packages give the same digest. Needs cargo; on Debian it installs buildah and a linker with apt-get (as root, or with
# sudo) if they are missing. Building itself needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/steps.sh
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin

all=(importer uploadserver uploadproxy cloner importer-vddk)
# Where each program is in the workspace.
declare -A package=(
    [cdi-importer]=importer [cdi-uploadserver]=uploadserver [cdi-uploadproxy]=uploadproxy [cdi-cloner]=cloner
    [cdi-containerimage-server]=containerimage-server [cdi-image-size-detection]=imagetools [cdi-source-update-poller]=poller [qemu-img]=imagetools
)

complain() {
    echo "images/build.sh: $*" >&2
    exit 2
}

profile=release programs='' output=target/images target='' limited='' chosen=()
while [ $# != 0 ]; do
    case $1 in
        --profile | --programs | --target | --output)
            [ $# -gt 1 ] || complain "$1 needs a value"
            printf -v "${1#--}" %s "$2"
            shift
            ;;
        -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit ;;
        -*) complain "unknown option $1; --help lists them" ;;
        *)
            [[ " ${all[*]} " == *" $1 "* ]] || complain "no image $1; there are: ${all[*]}"
            chosen+=("$1")
            ;;
    esac
    shift
done
. images/static.sh
case $target in
    x86_64-*) architecture=amd64 prefix=x86_64-linux-gnu linker=gcc-x86-64-linux-gnu ;;
    aarch64-*) architecture=arm64 prefix=aarch64-linux-gnu linker=gcc-aarch64-linux-gnu ;;
    s390x-*) architecture=s390x prefix=s390x-linux-gnu linker=gcc-s390x-linux-gnu ;;
    *) complain "no image can be built for $target yet" ;;
esac
[ "$target" = "$(rustc --print host-tuple)" ] && prefix='' linker=gcc
work=target/images/stage/$architecture
# VMware's library exists for one architecture, and nbdkit's plugin for it is compiled for this machine.
if [ "$architecture$prefix" != amd64 ]; then
    [[ " ${chosen[*]} " != *' importer-vddk '* ]] || complain 'importer-vddk can only be built on and for amd64'
    unset 'all[-1]'
fi
[ ${#chosen[@]} != 0 ] || chosen=("${all[@]}")

needs() {
    local missing=()
    for name in "$@"; do
        dpkg-query --show --showformat '${Status}' "$name" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] && return
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# What an archive is made with: buildah, and what looks into the archive afterwards.
install_tools() {
    needs buildah skopeo python3 binutils dpkg-dev make "$linker" libc6-dev${prefix:+-$architecture-cross}
    [ -z "$prefix" ] || rustup target add "$target"
}

# contents IMAGE: the lines of its `contents`, and of the one that it is like.
contents() {
    local kind words
    while read -r kind words; do
        if [ "$kind" = like ]; then contents "$words"; else echo "$kind $words"; fi
    done <"images/$1/contents"
}

# The programs of the chosen images, with nothing of this machine's folders in them.
compile() {
    local wanted packages=() name
    wanted=$(for image in "${chosen[@]}"; do contents "$image"; done | sed -n 's/^program //p' | sort --unique)
    for name in $wanted; do packages+=(--bin "$name" --package "${package[$name]}"); done
    if [ "$profile" != dev ]; then
        local -n flags=CARGO_TARGET_${static_name//-/_}_RUSTFLAGS
        flags+=" --remap-path-prefix=$PWD=/cdi-workers --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    fi
    if [ -n "$prefix" ]; then
        export "CARGO_TARGET_${static_name//-/_}_LINKER=$prefix-gcc" "CC_${target//-/_}=$prefix-gcc" "CXX_${target//-/_}=$prefix-g++"
    fi
    cargo build --locked --profile "$profile" "${packages[@]}"
}

# As who calls it: apt's own user may not write here.
download() { apt-get download -qq -o "APT::Sandbox::User=$(id -un)" "$1"; }

# Debian's packages, unpacked and not installed: they may be another architecture's.
unpack_packages() {
    local wanted=("busybox-static:$architecture" "bash-static:$architecture" ca-certificates:all) name
    mkdir -p "$work/deb"
    [ -z "$prefix" ] || { as_root dpkg --add-architecture "$architecture" && as_root apt-get update -qq; }
    for name in "${wanted[@]}"; do
        compgen -G "$work/deb/${name%:*}_*.deb" >/dev/null && continue
        (cd "$work/deb" && download "$name") || { as_root apt-get update -qq && (cd "$work/deb" && download "$name"); }
    done
    rm -rf "$work/debian"
    for name in "$work"/deb/*.deb; do dpkg-deb --extract "$name" "$work/debian"; done
}

# in_debian NAME: a program of the unpacked packages. Newer ones have moved theirs from /bin to /usr/bin.
in_debian() { find "$work/debian" -path "*/bin/$1" -type f; }

# add_package NAME: the licence of a package that an image takes a file from.
add_package() {
    install -D -m 644 "$work/debian/usr/share/doc/$1/copyright" "$root/usr/share/doc/$1/copyright"
    echo "$1" >>"$root.packages"
}

# The file system of an image, from its `contents`.
lay_out() {
    local image=$1 root=$work/$1/root kind words package
    rm -rf "${work:?}/$image"
    # As distributions have it now: one folder for all programs.
    install -d "$root/usr/bin" "$root/etc" "$root/proc" "$root/sys" "$root/dev"
    install -d -m 1777 "$root/tmp"
    ln -s usr/bin "$root/bin"
    ln -s usr/bin "$root/sbin"
    ln -s bin "$root/usr/sbin"
    install -m 644 images/etc/* "$root/etc/"
    : >"$root.packages"
    while read -r kind words; do
        # shellcheck disable=SC2086 # several words
        case $kind in
            '' | '#'*) ;;
            program) "${prefix:+$prefix-}strip" -o "$root/usr/bin/$words" "$programs/$words" ;;
            scripts) for tool in $words; do install -m 755 "images/tools/$tool" "$root/usr/bin/$tool"; done ;;
            link) set -- $words && ln -s "$2" "$root/usr/bin/$1" ;;
            shell)
                install "$(in_debian bash-static)" "$root/usr/bin/bash"
                ln -s bash "$root/usr/bin/sh"
                add_package bash-static
                ;;
            tools)
                if [ ! -e "$root/usr/bin/busybox" ]; then
                    install "$(in_debian busybox)" "$root/usr/bin/busybox"
                    add_package busybox-static
                fi
                for tool in $words; do ln -s busybox "$root/usr/bin/$tool"; done
                ;;
            certificates)
                install -d "$root/etc/ssl/certs"
                find "$work/debian/usr/share/ca-certificates/mozilla" -name '*.crt' -print0 | LC_ALL=C sort -z |
                    xargs -0 cat >"$root/etc/ssl/certs/ca-certificates.crt"
                add_package ca-certificates
                ;;
            nbdkit)
                cp --archive "$nbdkit/root/." "$root/"
                for package in "$nbdkit"/packages/*; do basename "${package%%_*}" >>"$root.packages"; done
                ;;
            *) complain "images/$image/contents: unknown $kind" ;;
        esac
    done < <(contents "$image")
    chmod -R u=rwX,go=rX "$root"
    chmod 1777 "$root/tmp"
}

# Bytes in millions, with one digit behind the point.
mega() { awk "BEGIN { printf \"%.1f\", $1 / 1000000 }"; }

# What may be in an image, in millions of bytes. Those of unoptimised programs may be larger.
limit() {
    case $1 in
        importer) echo 40 ;;
        importer-vddk) echo 60 ;;
        *) echo 25 ;;
    esac
}

# The image, its bill of materials, and a line about it.
pack() {
    local image=$1 name=cdi-$1 archive=$output/cdi-$1-$architecture.oci.tar version size packages
    version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    mkdir -p "$output"
    # No time of the build is in it: what is the same has the same digest.
    buildah build --quiet --isolation chroot --arch "$architecture" --timestamp "${SOURCE_DATE_EPOCH:-0}" --format oci \
        --label "org.opencontainers.image.title=$name" --label "org.opencontainers.image.version=$version" \
        --label org.opencontainers.image.licenses=Apache-2.0 \
        --label "org.opencontainers.image.description=$(sed -n '1s/^# //p' "images/$image/Containerfile")" \
        --tag "localhost/$name:$version" --file "images/$image/Containerfile" "$work/$image" >/dev/null
    rm -f "$archive"
    buildah push --quiet "localhost/$name:$version" "oci-archive:$archive:$name:$version"
    mapfile -t packages < <(contents "$image" | sed -n 's/^program //p' | while read -r program; do echo "${package[$program]}"; done | sort -u)
    images/bill-of-materials --name "$name" --version "$version" --target "$target" --debian "$work/deb" ${nbdkit:+--debian "$nbdkit/packages"} \
        "$work/$image/root.packages" "${packages[@]}" >"$output/$name-$architecture.cdx.json"
    size=$(du --apparent-size --bytes --summarize "$work/$image/root" | cut --fields=1)
    printf '%-20s %s  %5s MB, compressed %5s MB\n' "$name" "$(skopeo inspect --format '{{.Digest}}' "oci-archive:$archive")" \
        "$(mega "$size")" "$(mega "$(stat --format %s "$archive")")"
    if [ -n "$limited" ] && [ "$size" -gt "$(limit "$image")000000" ]; then
        too_large+=("$name has more than the $(limit "$image") MB that it may have")
    fi
}

install_tools
if [ -z "$programs" ]; then
    step compile compile
    programs=${CARGO_TARGET_DIR:-target}/$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
    [ "$profile" != release ] || limited=yes
fi
step packages unpack_packages
nbdkit=''
if [[ " ${chosen[*]} " == *' importer-vddk '* ]]; then nbdkit=$(images/nbdkit); fi
printf '\n=== images\n'
# All are packed before one is complained about: a compilation takes minutes.
too_large=()
for image in "${chosen[@]}"; do
    lay_out "$image"
    pack "$image"
done
printf '\nArchives and bills of materials are in %s\n' "$output"
[ ${#too_large[@]} = 0 ] || complain "$(printf '%s\n' "${too_large[@]}")"
