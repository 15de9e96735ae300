//! `qemu-img`: provides only the subcommand `info` of QEMU's program.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    imagetools::qemu_img::main(&arguments)
}
