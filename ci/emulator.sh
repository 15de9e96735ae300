# shellcheck shell=bash
# Programs of arm64 on another machine; to be sourced after ci/steps.sh.

# emulate_arm64: has the kernel hand them to qemu's user-mode emulation, also in containers and other roots, for it is opened now (F in
# the line of Debian's package). A machine of arm64 needs nothing.
emulate_arm64() {
    local folder=/proc/sys/fs/binfmt_misc
    [ "$(uname -m)" != aarch64 ] || return 0
    needs qemu-user-static
    [ -e "$folder/register" ] || as_root mount -t binfmt_misc none "$folder"
    [ -e "$folder/qemu-aarch64" ] || as_root tee "$folder/register" </usr/lib/binfmt.d/qemu-aarch64.conf >/dev/null
}
