//! The small programs that CDI runs in its importer's image (contract, appendix B), linked into one
//! executable, so that they share their libraries. The image has a link with the name of each
//! program, and the executable runs the program under whose name it was started:
//!
//! * `cdi-source-update-poller`, which checks whether a registry contains a new image;
//! * `cdi-image-size-detection`, which reports the size of the disk on a volume;
//! * `qemu-img`, which supports only `info`.
//!
//! `cdi-containerimage-server` and `cdi-env-extractor` are programs of their own, because CDI runs
//! them in users' images.

#![forbid(unsafe_code)]

mod image;
mod poller;
mod qemu_img;
mod size_detection;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use program::command_line;
use program::env::NamedStrings;
use program::exit::ExitReason;

/// Runs the program that the first of `words` names, with the others as its arguments.
pub fn main(words: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let name = words.first().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    let arguments = words.get(1..).unwrap_or_default();
    match name.to_str() {
        Some(poller::PROGRAM) => poller::main(arguments, env),
        Some(size_detection::PROGRAM) => size_detection::main(arguments, env),
        Some(qemu_img::PROGRAM) => qemu_img::main(words),
        _ => {
            let names = [poller::PROGRAM, size_detection::PROGRAM, qemu_img::PROGRAM].join(", ");
            let sentence =
                format!("start this program through a link with one of its names: {names}");
            command_line::print_error("cdi-importer-tools", sentence);
            ExitReason::Usage.into()
        }
    }
}
