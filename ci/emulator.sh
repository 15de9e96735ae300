# shellcheck shell=bash
# Programs of other machines; to be sourced after ci/steps.sh.

# emulate MACHINE (as `uname` has it): has the kernel hand its programs to qemu's user-mode emulation, also in containers and other
# roots, for it is opened now (F in the line of Debian's package). The machine itself needs nothing.
emulate() {
    local folder=/proc/sys/fs/binfmt_misc
    [ "$(uname -m)" != "$1" ] || return 0
    needs qemu-user-static
    [ -e "$folder/register" ] || as_root mount -t binfmt_misc none "$folder"
    [ -e "$folder/qemu-$1" ] || as_root tee "$folder/register" <"/usr/lib/binfmt.d/qemu-$1.conf" >/dev/null
}
