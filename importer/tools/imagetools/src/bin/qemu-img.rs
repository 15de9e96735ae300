//! `qemu-img`: tells about a disk image what QEMU's program of that name would tell, and can nothing else.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    imagetools::qemu_img::main(&arguments)
}
