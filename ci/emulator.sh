# shellcheck shell=bash
# Runs programs of other architectures. To be sourced after ci/steps.sh.

# emulate MACHINE (as printed by `uname`): lets the kernel run this architecture's programs with
# qemu's user-mode emulation, also in containers and other roots, because the emulator is opened at
# registration (flag F in Debian's file). Does nothing on such a machine.
emulate() {
    local folder=/proc/sys/fs/binfmt_misc
    [ "$(uname -m)" != "$1" ] || return 0
    needs qemu-user-static
    [ -e "$folder/register" ] || as_root mount -t binfmt_misc none "$folder"
    [ -e "$folder/qemu-$1" ] || as_root tee "$folder/register" <"/usr/lib/binfmt.d/qemu-$1.conf" >/dev/null
}
