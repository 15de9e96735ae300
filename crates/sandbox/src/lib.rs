//! Takes rights from a process before it reads untrusted bytes: Landlock limits the files and TCP
//! ports that it can open, and a seccomp filter limits its system calls.
//!
//! ```no_run
//! use program::env::ProcessEnv;
//! use sandbox::{SandboxMode, SandboxRules};
//!
//! let mut rules = SandboxRules::new(&ProcessEnv);
//! rules.read("disk.qcow2").write_disk("disk.img");
//! sandbox::enter(SandboxMode::On, rules)?;
//! sandbox::log_applied();
//! # Ok::<(), program::command_line::CommandError>(())
//! ```
//!
//! A program calls [`enter`] in its main thread before it starts other threads: Landlock applies to
//! the calling thread and to those that it starts later. (Linux 7.0 can restrict all threads, and
//! is asked to.) The seccomp filter applies to all threads.
//!
//! The decoders run in the same process and address space as the network code, so an attacker who
//! controls a decoder controls the whole process. The sandbox limits what that process can do. The
//! rules therefore contain the files that a program opens later, and nothing else: see `files`.
//! The list of system calls is in `calls`.

#![forbid(unsafe_code)]

mod calls;
mod files;

use std::fmt;

use parking_lot::Mutex;
use program::command_line::CommandError;
use program::env::NamedStrings;
use program::exit::ExitReason;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::set_no_new_privs;

pub use files::{SandboxRules, TcpConnections};

use calls::CallSet;

/// The variable with the mode of a pod.
pub const MODE_VARIABLE: &str = "CDI_WORKERS_SANDBOX";

/// Limit of a core dump in bytes. With 0, the kernel would still send a dump to a program that
/// `core_pattern` names; with 1 it does not (core(5), `do_coredump` in `fs/coredump.c`).
const CORE_BYTES: u64 = 1;

/// The option of every program that enters the sandbox.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct SandboxArgs {
    /// Give up the rights that the command does not need: to other files, to start programs, to
    /// most system calls; `require` fails if the kernel cannot do all of this
    // With the help of each mode, clap would print the long form of every command's help.
    #[arg(long, global = true, value_name = "off|on|require", value_enum,
          default_value_t = SandboxMode::On, hide_possible_values = true, help_heading = "Sandbox")]
    pub sandbox: SandboxMode,
}

/// Modes of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SandboxMode {
    /// Keep all rights
    Off,
    /// Give up every right that it does not need, as far as the kernel supports it
    #[default]
    On,
    /// Fail if the kernel cannot restrict both files and system calls
    Require,
}

impl SandboxMode {
    /// Reads the mode of a pod from [`MODE_VARIABLE`]. Without a value the mode is
    /// [`SandboxMode::On`].
    pub fn of_pod(env: &dyn NamedStrings) -> Result<Self, CommandError> {
        let text = env.get(MODE_VARIABLE).unwrap_or_default();
        match text.as_str() {
            "" => Ok(Self::default()),
            text => clap::ValueEnum::from_str(text, false).map_err(|_| {
                let sentence = format_args!("{MODE_VARIABLE} is {text:?}: use off, on or require");
                CommandError::new(ExitReason::Internal, sentence)
            }),
        }
    }
}

/// Returns the error for [`SandboxMode::Require`] if `part` of the sandbox is not available.
fn unavailable_error(part: &str, reason: &str) -> CommandError {
    let sentence = format_args!(
        "the sandbox is required, but {part} are not restricted: {reason}; use --sandbox on (in pods {MODE_VARIABLE}=on) to continue \
         without"
    );
    CommandError::new(ExitReason::Internal, sentence)
}

/// A part of the sandbox: its description, or the reason why it is missing.
type AppliedPart = Result<String, String>;

/// The sandbox of this process.
struct AppliedSandbox {
    files: AppliedPart,
    calls: AppliedPart,
    limits: AppliedLimits,
}

/// Rights that every process gives up, also before it starts another program.
#[derive(Debug, Clone, Copy)]
struct AppliedLimits {
    has_no_new_privileges: bool,
    has_no_core_dumps: bool,
}

impl AppliedLimits {
    fn apply() -> Self {
        let limit = Rlimit { current: Some(CORE_BYTES), maximum: Some(CORE_BYTES) };
        Self {
            has_no_core_dumps: setrlimit(Resource::Core, limit).is_ok(),
            has_no_new_privileges: set_no_new_privs(true).is_ok(),
        }
    }
}

impl fmt::Display for AppliedSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sandbox: ")?;
        match &self.files {
            Ok(files) => f.write_str(files)?,
            Err(reason) => write!(f, "files not restricted ({reason})")?,
        }
        match &self.calls {
            Ok(calls) => write!(f, ", {calls}")?,
            Err(reason) => write!(f, ", system calls not restricted ({reason})")?,
        }
        if self.limits.has_no_new_privileges {
            f.write_str(", no new privileges")?;
        }
        if self.limits.has_no_core_dumps {
            f.write_str(", no core dumps")?;
        }
        Ok(())
    }
}

impl AppliedSandbox {
    /// True if the kernel did all that it was asked for. A process that starts a program keeps its
    /// files on purpose.
    fn is_complete(&self) -> bool {
        let has_files =
            self.files.as_ref().err().is_none_or(|reason| reason == files::STARTS_PROGRAM);
        let limits = self.limits.has_no_new_privileges && self.limits.has_no_core_dumps;
        has_files && self.calls.is_ok() && limits
    }
}

/// The state of the sandbox.
enum SandboxState {
    /// Nothing is restricted.
    Outside,
    /// The process starts a program first, and [`enter_deferred`] restricts it.
    Deferred(SandboxMode, AppliedLimits),
    /// The process is restricted.
    Inside(AppliedSandbox),
}

static STATE: Mutex<SandboxState> = Mutex::new(SandboxState::Outside);

/// Restricts this process to `rules`, as far as the kernel can. Fails in [`SandboxMode::Require`]
/// if it cannot, and in each mode if a target cannot be opened; the process must then exit.
///
/// With [`SandboxRules::defer`], only new privileges and core dumps are ruled out now, and
/// [`enter_deferred`] does the rest.
pub fn enter(mode: SandboxMode, rules: SandboxRules) -> Result<(), CommandError> {
    if mode == SandboxMode::Off {
        return Ok(());
    }
    if let Some(reason) = rules.deferred
        && mode == SandboxMode::Require
    {
        return Err(unavailable_error("files", reason));
    }
    // If one of the limits fails, the rest is still worth having.
    let limits = AppliedLimits::apply();
    if rules.deferred.is_some() {
        *STATE.lock() = SandboxState::Deferred(mode, limits);
        return Ok(());
    }
    let calls = rules.calls;
    apply(mode, limits, files::restrict_files(rules)?, calls)
}

/// Restricts a pod to `rules`, in the mode that `env` names, and logs what was applied. Like
/// [`enter`], it must be called while the process has one thread.
pub fn enter_pod(env: &dyn NamedStrings, rules: SandboxRules) -> Result<(), CommandError> {
    enter(SandboxMode::of_pod(env)?, rules)?;
    log_applied();
    Ok(())
}

/// Restricts the system calls of a process that has started another program in the meantime. Does
/// nothing unless [`enter`] deferred this.
pub fn enter_deferred() -> Result<(), CommandError> {
    let (mode, limits) = match *STATE.lock() {
        SandboxState::Deferred(mode, limits) => (mode, limits),
        SandboxState::Outside | SandboxState::Inside(_) => return Ok(()),
    };
    // Landlock would also restrict that program if it were applied before its start, and is of
    // little use in one of several threads afterwards.
    let calls = CallSet { network: true, unix: true, children: true, ..CallSet::default() };
    apply(mode, limits, Err(files::STARTS_PROGRAM.to_owned()), calls)?;
    log_applied();
    Ok(())
}

fn apply(
    mode: SandboxMode,
    limits: AppliedLimits,
    files: AppliedPart,
    set: CallSet,
) -> Result<(), CommandError> {
    let calls = calls::restrict_calls(set);
    if mode == SandboxMode::Require {
        for (what, part) in [("files", &files), ("system calls", &calls)] {
            if let Err(reason) = part {
                return Err(unavailable_error(what, reason));
            }
        }
    }
    *STATE.lock() = SandboxState::Inside(AppliedSandbox { files, calls, limits });
    Ok(())
}

/// True if the kernel denies this process other files than those that it named.
pub fn restricts_files() -> bool {
    matches!(&*STATE.lock(), SandboxState::Inside(applied) if applied.files.is_ok())
}

/// Logs what restricts this process. Called once the log has begun.
pub fn log_applied() {
    match &*STATE.lock() {
        SandboxState::Inside(applied) if applied.is_complete() => tracing::info!("{applied}"),
        SandboxState::Inside(applied) => tracing::warn!("{applied}"),
        SandboxState::Outside => tracing::debug!("sandbox: off"),
        SandboxState::Deferred(..) => {}
    }
}

/// Takes the right to make sockets and to connect them from a server that has its listening
/// socket. Does nothing outside the sandbox.
pub fn close_network() {
    deny_further(calls::deny_sockets, "new sockets are still possible");
}

/// Takes the right to listen from a process that serves its metrics already. Does nothing outside
/// the sandbox.
pub fn close_listening() {
    deny_further(calls::deny_listening, "new sockets can still listen");
}

/// Denies further system calls inside the sandbox. Warns about the `consequence` of a failure.
fn deny_further(deny: fn() -> Result<(), String>, consequence: &str) {
    if matches!(&*STATE.lock(), SandboxState::Inside(applied) if applied.calls.is_ok())
        && let Err(reason) = deny()
    {
        tracing::warn!("sandbox: {consequence}: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn pods_choose_the_mode_by_a_variable() {
        let mode = |value: &str| {
            let env = HashMap::from([(MODE_VARIABLE.to_owned(), value.to_owned())]);
            SandboxMode::of_pod(&env)
        };
        assert_eq!(SandboxMode::of_pod(&HashMap::new()).unwrap(), SandboxMode::On);
        for (value, expected) in [
            ("", SandboxMode::On),
            ("on", SandboxMode::On),
            ("off", SandboxMode::Off),
            ("require", SandboxMode::Require),
        ] {
            assert_eq!(mode(value).unwrap(), expected);
        }
        for value in ["Off", "false", "0", " on"] {
            let error = mode(value).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains("off, on or require"), "{error}");
        }
    }

    #[test]
    fn the_log_line_states_what_is_missing() {
        let applied = |files, calls, has_no_core_dumps| {
            let limits = AppliedLimits { has_no_new_privileges: true, has_no_core_dumps };
            AppliedSandbox { files, calls, limits }
        };
        let (files, calls) = (Ok("files by Landlock ABI 3".to_owned()), Ok("9 calls".to_owned()));
        let complete = applied(files, calls, true);
        assert_eq!(
            complete.to_string(),
            "sandbox: files by Landlock ABI 3, 9 calls, no new privileges, no core dumps"
        );
        assert!(complete.is_complete());
        let applied = applied(Err("no Landlock".to_owned()), Err("s390x".to_owned()), false);
        assert!(!applied.is_complete());
        let line = applied.to_string();
        assert!(line.ends_with(", no new privileges"), "{line}");
        assert!(line.contains("files not restricted (no Landlock)"), "{line}");
        assert!(line.contains("system calls not restricted (s390x)"), "{line}");
    }
}
