# shellcheck shell=bash
# How the programs of the images are compiled; to be sourced. Tests are compiled in the same way, so that they run what is shipped, but
# for its optimisation and the variables of tests, to which release programs are deaf.
#
# Linked statically with glibc: images need no libraries, and a static program runs in any image. musl would compare memory byte by
# byte, which is what looking for zeros is. glibc's own resolver serves for names (since 2.34 it needs no libraries for files and DNS).
#
# target, if set, may be another machine's: aarch64-unknown-linux-gnu, s390x-unknown-linux-gnu. Debian's cross compilers serve then.

native=$(rustc --print host-tuple)
target=${target:-$native}
# A target that is named keeps these flags from build scripts and macros, which cannot be static.
export CARGO_BUILD_TARGET=$target
static_name=${target^^}
static_name=${static_name//-/_}
export "CARGO_TARGET_${static_name}_RUSTFLAGS=-C target-feature=+crt-static"

# What the names of its compiler, linker and strip begin with; nothing for those of this machine.
cross=''
if [ "$target" != "$native" ]; then
    cross=${target/-unknown/}-
    export "CARGO_TARGET_${static_name}_LINKER=${cross}gcc" "CC_${target//-/_}=${cross}gcc"
fi
# Kernels of arm64 have pages of 4, 16 or 64 KiB, and jemalloc ends where they are larger than the ones that it was compiled for.
case $target in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
