//! `cdi-importer run-with-parent`: runs a program that does not outlive the process that asked for it.
//!
//! The importer starts nbdkit like this. The kernel alone cannot see to it: nbdkit wants SIGTERM at the death of its parent, and puts
//! that in the place of a SIGKILL when it starts (1.32), but obeys only when VMware's library returns from what it is doing. Measured
//! with a read that hung for 20 s, it was there for 19 s more.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use datapath::error::{ThreadStartError, errno_text};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sources::vddk::END_LIMIT;

use super::args::RunArgs;
use super::failure::ImporterCommandError;

/// Runs the program, and ends it when standard input does: that is a pipe which only the parent can write into.
pub(super) fn run(arguments: &RunArgs) -> Result<(), ImporterCommandError> {
    let failed = |reason: &str| {
        let program = arguments.program.display();
        ImporterCommandError::Internal(format!("cannot start {program}: {reason}"))
    };
    let mut child = Command::new(&arguments.program)
        .args(&arguments.arguments)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| failed(&errno_text(&error)))?;
    // Of a descriptor nobody else can get the number.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.map_err(|errno| failed(&errno_text(&errno.into())))?;
    let watching = thread::Builder::new().spawn(move || {
        wait_for_the_end();
        for signal in [Signal::TERM, Signal::KILL] {
            // It has ended by itself, and so does this process soon.
            if pidfd_send_signal(&process, signal).is_err() {
                return;
            }
            thread::sleep(END_LIMIT);
        }
    });
    if let Err(error) = watching {
        child.kill().and_then(|()| child.wait()).ok();
        return Err(failed(&ThreadStartError(error).to_string()));
    }
    let status = child.wait().map_err(|error| failed(&errno_text(&error)))?;
    std::process::exit(exit_code(status))
}

fn wait_for_the_end() {
    let mut input = std::io::stdin().lock();
    while input.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
}

/// The exit code by which a shell tells `status`.
fn exit_code(status: ExitStatus) -> i32 {
    let killed = status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or(killed)
}
