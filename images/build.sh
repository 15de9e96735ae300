#!/usr/bin/env bash
# Builds the container images as OCI archives, with a bill of materials each, and prints their digests and sizes.
#
#   images/build.sh [OPTION…] [IMAGE…]       IMAGE: importer uploadserver uploadproxy cloner importer-vddk; all without one
#
#   --profile NAME     of cargo: dist by default, whose programs fit into the images; dev is quick to compile
#   --programs FOLDER  takes programs from there that are linked statically, as CI does with those that its tests have run
#   --target TRIPLE    x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu or s390x-unknown-linux-gnu; this machine's by default
#   --output FOLDER    target/images by default
#
# Writes cdi-IMAGE-ARCH.oci.tar (for podman, skopeo, ctr) and cdi-IMAGE-ARCH.cdx.json (CycloneDX). The same sources, toolchain
# and Debian packages give the same bytes. Needs cargo; on Debian it installs buildah and a linker with apt-get (as root, or with
# sudo) if they are missing. Building itself needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/steps.sh
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin

all=(importer uploadserver uploadproxy cloner importer-vddk)
complain() {
    echo "images/build.sh: $*" >&2
    exit 2
}

profile=dist programs='' output=target/images target='' chosen=()
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
. images/compile.sh
work=$PWD/target/images/stage/$architecture
# VMware's library exists for one architecture, and nbdkit's plugin for it is compiled for this machine.
if [ "$architecture$cross" != amd64 ]; then
    [[ " ${chosen[*]} " != *' importer-vddk '* ]] || complain 'importer-vddk can only be built on and for amd64'
    unset 'all[-1]'
fi
[ ${#chosen[@]} != 0 ] || chosen=("${all[@]}")

# contents IMAGE: the lines of its `contents`, and of the one that it is like.
contents() {
    local kind words
    while read -r kind words; do
        if [ "$kind" = like ]; then contents "$words"; else echo "$kind $words"; fi
    done <"images/$1/contents"
}

# The programs of the chosen images.
compile_chosen() {
    local wanted
    mapfile -t wanted < <(for image in "${chosen[@]}"; do contents "$image"; done | sed -n 's/^program //p' | sort --unique)
    compile "$profile" "${wanted[@]}"
}

# The packages that the images take files from.
unpack_packages() {
    local name
    download "$work/deb" busybox-static bash-static ca-certificates
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

# The file system of an image, from its `contents`; sets `packages` to those of the workspace that are in it.
lay_out() {
    local image=$1 root=$work/$1/root kind words taken
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
            program)
                # It would not start in an image without libraries, nor in a user's image, where a node pull runs one of them.
                if grep --quiet INTERP <<<"$(readelf --program-headers --wide "$programs/$words")"; then
                    echo "images/build.sh: warning: $programs/$words is linked dynamically; compile as .cargo/config.toml says" >&2
                fi
                "${cross}strip" -o "$root/usr/bin/$words" "$programs/$words"
                ;;
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
                for taken in "$nbdkit"/packages/*; do basename "${taken%%_*}" >>"$root.packages"; done
                ;;
            *) complain "images/$image/contents: unknown $kind" ;;
        esac
    done < <(contents "$image")
    # shellcheck disable=SC2046 # several names
    mapfile -t packages < <(packages_of $(contents "$image" | sed -n 's/^program //p'))
    install -D -m 644 LICENSE "$root/usr/share/doc/cdi-workers/copyright"
    images/licences "$target" "${packages[@]}" | gzip --no-name --best >"$root/usr/share/doc/cdi-workers/LICENCES.gz"
    chmod -R u=rwX,go=rX "$root"
    chmod 1777 "$root/tmp"
}

# Bytes in millions, with one digit behind the point.
mega() { awk "BEGIN { printf \"%.1f\", $1 / 1000000 }"; }

# What may be in an image, in millions of bytes.
limit() {
    case $1 in
        importer) echo 40 ;;
        importer-vddk) echo 60 ;;
        *) echo 25 ;;
    esac
}

# The image that was laid out, its bill of materials, and a line about it.
pack() {
    local image=$1 name=cdi-$1 archive=$output/cdi-$1-$architecture.oci.tar version size
    version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    mkdir -p "$output"
    # No time of the build is in it: what is the same has the same digest.
    buildah build --quiet --isolation chroot --arch "$architecture" --timestamp "${SOURCE_DATE_EPOCH:-0}" --format oci \
        --label "org.opencontainers.image.title=$name" --label "org.opencontainers.image.version=$version" \
        --label org.opencontainers.image.licenses=Apache-2.0 \
        --label "org.opencontainers.image.description=$(sed -n '1s/^# //p' "images/$image/Containerfile")" \
        --tag "localhost/$name:$version" --file "images/$image/Containerfile" "$work/$image" >/dev/null
    # skopeo and buildah would write the time into an archive.
    rm -rf "$work/$image/layout" "$archive"
    buildah push --quiet "localhost/$name:$version" "oci:$work/$image/layout:$name:$version"
    same_tar "$archive" -C "$work/$image/layout" .
    images/bill-of-materials --name "$name" --version "$version" --target "$target" --glibc "$(glibc_version)" --debian "$work/deb" ${nbdkit:+--debian "$nbdkit/packages"} \
        --taken "$work/$image/root.packages" "${packages[@]}" >"$output/$name-$architecture.cdx.json"
    size=$(du --apparent-size --bytes --summarize "$work/$image/root" | cut --fields=1)
    printf '%-20s %s  %5s MB, compressed %5s MB\n' "$name" "$(skopeo inspect --format '{{.Digest}}' "oci-archive:$archive")" \
        "$(mega "$size")" "$(mega "$(stat --format %s "$archive")")"
    # Those of unoptimised programs may be larger.
    if [ "$(basename "$programs")" != debug ] && [ "$size" -gt "$(limit "$image")000000" ]; then
        too_large+=("$name has $size bytes, which is more than $(limit "$image") MB")
    fi
}

# What an archive is made with: buildah, and what looks into the archive afterwards.
needs buildah skopeo python3 binutils dpkg-dev make "${compiler[@]}"
if [ -z "$programs" ]; then
    step compile compile_chosen
    programs=$(programs_folder "$profile")
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
# With thin LTO, which is the profile release, the importer's image had 40.1 MB.
[ ${#too_large[@]} = 0 ] || complain "$(printf '%s; ' "${too_large[@]}")use programs of --profile dist, other profiles make larger ones"
