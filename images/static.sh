# shellcheck shell=bash
# How the programs of the images are compiled; to be sourced. Tests are compiled in the same way, so that they run what is shipped, but
# for its optimisation and the variables of tests, to which release programs are deaf.
#
# Linked statically with glibc: images need no libraries, and a static program runs in any image. musl would compare memory byte by
# byte, which is what looking for zeros is. glibc's own resolver serves for names (since 2.34 it needs no libraries for files and DNS).
#
# target, if set, is another machine's: aarch64-unknown-linux-gnu, s390x-unknown-linux-gnu.

target=${target:-$(rustc --print host-tuple)}
# A target that is named keeps these flags from build scripts and macros, which cannot be static.
export CARGO_BUILD_TARGET=$target
static_name=${target^^}
export "CARGO_TARGET_${static_name//-/_}_RUSTFLAGS=-C target-feature=+crt-static"
