#!/usr/bin/env bash
# Builds the container images as OCI archives with a bill of materials each, and prints their
# digests and sizes.
#
#   images/build.sh [OPTION…] [IMAGE…]
#
# IMAGE is importer, uploadserver, uploadproxy, cloner or importer-vddk; all by default.
#
#   --profile NAME     cargo's profile: dist (default) makes small programs, dev compiles fast
#   --programs FOLDER  use these statically linked programs, as CI does with those it has tested
#   --target TRIPLE    x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu or
#                      s390x-unknown-linux-gnu; this machine's by default
#   --output FOLDER    target/images by default
#
# Writes cdi-IMAGE-ARCH.oci.tar (for podman, skopeo, ctr) and cdi-IMAGE-ARCH.cdx.json (CycloneDX).
# CDI_WORKERS_SOURCE is the address of the sources, for a label. The same commit, toolchain and
# Debian packages give the same bytes. Needs cargo. On Debian, missing tools (buildah, a linker) are
# installed with apt-get, as root or with sudo; building needs no root.
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
# VMware's library exists only for amd64, and nbdkit's plugin for it is not cross-compiled.
if [ "$architecture$cross" != amd64 ]; then
    [[ " ${chosen[*]} " != *' importer-vddk '* ]] || complain 'importer-vddk can only be built on and for amd64'
    unset 'all[-1]'
fi
[ ${#chosen[@]} != 0 ] || chosen=("${all[@]}")

# contents IMAGE: prints the image's `contents`, with `like` lines replaced by the contents of that
# image.
contents() {
    local kind words
    while read -r kind words; do
        if [ "$kind" = like ]; then contents "$words"; else echo "$kind $words"; fi
    done <"images/$1/contents"
}

# Compiles the programs of the chosen images.
compile_chosen() {
    local wanted
    mapfile -t wanted < <(for image in "${chosen[@]}"; do contents "$image"; done | sed -n 's/^program //p' | sort --unique)
    compile "$profile" "${wanted[@]}"
}

# Downloads and unpacks the Debian packages from which images take files.
unpack_packages() {
    local name
    download "$work/deb" busybox-static bash-static ca-certificates
    rm -rf "$work/debian"
    for name in "$work"/deb/*.deb; do dpkg-deb --extract "$name" "$work/debian"; done
}

# in_debian NAME: finds a program in the unpacked packages: in /bin or, in newer packages, in
# /usr/bin.
in_debian() { find "$work/debian" -path "*/bin/$1" -type f; }

# add_package NAME: adds the licence of a package from which the image takes a file.
add_package() {
    install -D -m 644 "$work/debian/usr/share/doc/$1/copyright" "$root/licenses/$1"
    echo "$1" >>"$root.packages"
}

# lay_out IMAGE: makes the image's file system from its `contents`, and sets `packages` to the
# workspace's packages in it.
lay_out() {
    local image=$1 root=$work/$1/root kind words taken
    rm -rf "${work:?}/$image"
    # Like current distributions, with a single folder for all programs.
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
                # A dynamically linked program would not start: this image has no libraries, and
                # neither may a user's image, in which a node pull runs one of the programs.
                if grep --quiet INTERP <<<"$(readelf --program-headers --wide "$programs/$words")"; then
                    echo "images/build.sh: warning: $programs/$words is linked dynamically; compile as .cargo/config.toml says" >&2
                fi
                finish "$programs/$words" "$root/usr/bin/$words"
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
    # Red Hat's preflight looks for this folder.
    install -D -m 644 LICENSE "$root/licenses/LICENSE"
    images/licences "$target" "${packages[@]}" | gzip --no-name --best >"$root/licenses/LICENCES.gz"
    chmod -R u=rwX,go=rX "$root"
    chmod 1777 "$root/tmp"
}

# labels IMAGE NAME VERSION: prints the image's labels: OCI's, and those that Red Hat's preflight
# requires.
labels() {
    local text
    text=$(sed -n '1s/^# //p' "images/$1/Containerfile")
    printf 'org.opencontainers.image.%s\n' "title=$2" "version=$3" "revision=$(git describe --always --dirty --abbrev=40 --exclude '*')" \
        "source=$source_url" licenses=Apache-2.0 "vendor=$vendor" "description=$text"
    printf '%s\n' "name=$2" "version=$3" release=1 "vendor=$vendor" "summary=$text" "description=$text"
}

# mega BYTES: prints bytes as millions, with one decimal.
mega() { awk "BEGIN { printf \"%.1f\", $1 / 1000000 }"; }

# limit IMAGE: the largest size of an image in millions of bytes.
limit() {
    case $1 in
        importer) echo 40 ;;
        importer-vddk) echo 60 ;;
        *) echo 25 ;;
    esac
}

# pack IMAGE: makes the archive and the bill of materials of the image, and prints a line about it.
pack() {
    local image=$1 name=cdi-$1 archive=$output/cdi-$1-$architecture.oci.tar version size labels
    version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    mkdir -p "$output"
    # A fixed time stamp, so that the same content has the same digest.
    mapfile -t labels < <(labels "$image" "$name" "$version")
    buildah build --quiet --isolation chroot --arch "$architecture" --timestamp "${SOURCE_DATE_EPOCH:-0}" --format oci "${labels[@]/#/--label=}" \
        --tag "localhost/$name:$version" --file "images/$image/Containerfile" "$work/$image" >/dev/null
    # skopeo and buildah would write the current time into an archive, so tar makes it.
    rm -rf "$work/$image/layout" "$archive"
    buildah push --quiet "localhost/$name:$version" "oci:$work/$image/layout:$name:$version"
    same_tar "$archive" -C "$work/$image/layout" .
    images/bill-of-materials --name "$name" --version "$version" --target "$target" --libc "$(libc)" --debian "$work/deb" ${nbdkit:+--debian "$nbdkit/packages"} \
        --taken "$work/$image/root.packages" "${packages[@]}" >"$output/$name-$architecture.cdx.json"
    size=$(du --apparent-size --bytes --summarize "$work/$image/root" | cut --fields=1)
    printf '%-20s %s  %5s MB, compressed %5s MB\n' "$name" "$(skopeo inspect --format '{{.Digest}}' "oci-archive:$archive")" \
        "$(mega "$size")" "$(mega "$(stat --format %s "$archive")")"
    # Unoptimised programs may be larger.
    if [ "$(basename "$programs")" != debug ] && [ "$size" -gt "$(limit "$image")000000" ]; then
        too_large+=("$name has $size bytes, which is more than $(limit "$image") MB")
    fi
}

# The tools for making archives and for reading them afterwards.
needs buildah skopeo python3 binutils dpkg-dev make "${compiler[@]}"
if [ -z "$programs" ]; then
    step compile compile_chosen
    programs=$(programs_folder "$profile")
fi
step packages unpack_packages
nbdkit=''
if [[ " ${chosen[*]} " == *' importer-vddk '* ]]; then nbdkit=$(images/nbdkit); fi
printf '\n=== images\n'
# All images are packed before a size limit is reported, because compiling takes minutes.
too_large=()
for image in "${chosen[@]}"; do
    lay_out "$image"
    pack "$image"
done
printf '\nArchives and bills of materials are in %s\n' "$output"
# With thin LTO, as in the profile release, the importer's image has 40.1 MB.
[ ${#too_large[@]} = 0 ] || complain "$(printf '%s; ' "${too_large[@]}")use programs of --profile dist, other profiles make larger ones"
