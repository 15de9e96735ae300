//! `cdi-importer exec-with-parent`: becomes a program that the kernel kills when the process that started it is gone.
//!
//! The importer starts nbdkit like this. `--exit-with-parent` of nbdkit is SIGTERM, which it obeys when VMware's library returns from
//! what it is doing: measured with a read that hung for 20 s, it was there for 19 s more. nbdkit 1.32 puts SIGTERM in the place of our
//! SIGKILL when it starts, option or not, so with that version a library that hangs still keeps it until it returns.

use std::os::unix::process::CommandExt;
use std::process::Command;

use datapath::error::errno_text;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::args::ExecArgs;
use super::failure::CommandFailed;

pub(super) fn run(arguments: &ExecArgs) -> Result<(), CommandFailed> {
    let failed = |what: &str, reason: &str| {
        CommandFailed::Internal(format!("cannot {what} {}: {reason}", arguments.program.display()))
    };
    // Kept over the execution of the program (prctl(2), PR_SET_PDEATHSIG).
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| failed("tie to us", errno.to_string().as_str()))?;
    // A parent that was gone before that sends nothing any more.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(arguments.parent) {
        return Err(failed("start", "who wanted it is gone"));
    }
    let error = Command::new(&arguments.program).args(&arguments.arguments).exec();
    Err(failed("start", &errno_text(&error)))
}
