//! Runs `cdi-importer run-with-parent`, which starts a program and ends it when the parent process
//! ends.
//!
//! The importer starts nbdkit this way, because the kernel's parent-death signal is not
//! sufficient. nbdkit (1.32) requests SIGTERM for the death of its parent, which replaces a
//! SIGKILL that was requested before it started. It reacts to SIGTERM only after the current call
//! into VMware's library has returned. In a test with a read that hung for 20 s, nbdkit ran for
//! another 19 s.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use hypervisors::vddk::END_LIMIT;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use stream::error::{ThreadStartError, errno_text};

use super::args::RunArgs;
use super::failure::{ImporterCommandError, internal_error};

/// Runs the program until it ends, and kills it when standard input reaches its end. Standard
/// input is a pipe whose writing end is held only by the parent, so it ends together with the
/// parent.
pub(super) fn run(arguments: &RunArgs) -> Result<(), ImporterCommandError> {
    let failed = |reason: &str| {
        let program = arguments.program.display();
        // The parent finds errors in the log of the program by this word.
        internal_error(format_args!("error: cannot start {program}: {reason}"))
    };
    let mut child = Command::new(&arguments.program)
        .args(&arguments.arguments)
        // The program does not get the pipe: this process reads it to detect that the parent has
        // ended.
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| failed(&errno_text(&error)))?;
    // Signals are sent through a process descriptor, because the process ID can be reused after
    // the program has ended.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.map_err(|errno| failed(&errno_text(&errno.into())))?;
    let watching = thread::Builder::new().spawn(move || {
        wait_for_the_end();
        for signal in [Signal::TERM, Signal::KILL] {
            // If sending fails, the program has already ended by itself, and this process will end
            // soon too.
            if pidfd_send_signal(&process, signal).is_err() {
                return;
            }
            thread::sleep(END_LIMIT);
        }
    });
    if let Err(error) = watching {
        // Without this thread, the program would outlive the parent, so it is killed at once.
        child.kill().and_then(|()| child.wait()).ok();
        return Err(failed(&ThreadStartError(error).to_string()));
    }
    let status = child.wait().map_err(|error| failed(&errno_text(&error)))?;
    std::process::exit(exit_code(status))
}

fn wait_for_the_end() {
    let mut input = std::io::stdin().lock();
    // A pipe that cannot be read counts as ended, because otherwise nothing would end the program.
    while input.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
}

/// Converts `status` to an exit code as in shells: 128 plus the number of the signal that ended
/// the program.
fn exit_code(status: ExitStatus) -> i32 {
    let killed = status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or(killed)
}
