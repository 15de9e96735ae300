//! The command line, which only prints information about the program. The proxy itself runs as a
//! pod.

use std::convert::Infallible;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use program::command_line;

/// Accepts uploads from outside the cluster: verifies the token, finds the upload server of the
/// PVC, and forwards the bytes.
///
/// Started with klog flags or with APISERVER_PUBLIC_KEY set, the program behaves as the upload
/// proxy of KubeVirt CDI.
#[derive(Debug, Parser)]
#[command(name = crate::PROGRAM)]
struct Cli {}

/// Returns true if `arguments` (without the program's name) name a subcommand.
pub fn names_subcommand(arguments: &[OsString]) -> bool {
    command_line::names_subcommand::<Cli>(arguments)
}

/// Runs the command in `arguments` (without the program's name). This program has only the
/// commands that all programs share.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let run = |Cli {}| Ok::<(), Infallible>(());
    command_line::main(crate::PROGRAM, arguments, |_| Vec::new(), run)
}
