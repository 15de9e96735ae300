//! Starts and watches a program, and ends it with the importer.

use std::fmt;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fetch::error::stopped_error;
use program::env::{NamedStrings, ProcessEnv};
use stream::error::{SourceError, ThreadStartError, errno_text};
use tokio_util::sync::CancellationToken;

use super::log::ProgramLog;

/// Longest time until nbdkit listens. It loads the library first, but connects to vSphere only
/// when a client connects.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Longest time for nbdkit to close the disk before it is killed.
pub const END_LIMIT: Duration = Duration::from_secs(5);

/// Time for a keeper to kill nbdkit and report that, before the keeper is killed itself.
const KEEPER_LIMIT: Duration = Duration::from_secs(1);

/// Prefixes of environment variables that nbdkit and the library do not get, because some of them
/// hold passwords.
const SECRET_PREFIXES: [&str; 3] = ["IMPORTER_", "AWS_", "GOOGLE_"];

/// Pause between two checks of nbdkit while it starts or ends. It is ready after some 30 ms.
const POLL: Duration = Duration::from_millis(5);

/// Time for a signal that has ended the program to reach the importer as well.
const SIGNAL_DELAY: Duration = Duration::from_millis(200);

/// The state of a program that was started.
pub(super) enum ProgramState {
    Ready,
    Ended(ExitStatus),
    Hanging,
}

impl fmt::Display for ProgramState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("is ready"),
            Self::Ended(status) => write!(f, "ended ({status})"),
            Self::Hanging => write!(f, "is not ready after {} s", START_LIMIT.as_secs()),
        }
    }
}

/// A running program, whose standard error is kept as a log.
pub(super) struct RunningProgram {
    /// A keeper, which runs the program and ends it when the keeper's input ends: at the latest
    /// when the importer ends.
    child: Child,
    pub(super) log: ProgramLog,
    reader: Option<JoinHandle<()>>,
}

impl RunningProgram {
    /// Starts `command`, a keeper, with the environment that it needs, but without the keys and
    /// passwords of the pod. Cancels `gone` when the program ends.
    pub(super) fn start(command: &mut Command, gone: CancellationToken) -> io::Result<Self> {
        let secrets = SECRET_PREFIXES.iter().flat_map(|prefix| ProcessEnv.with_prefix(prefix));
        for (name, _) in secrets {
            command.env_remove(name);
        }
        let mut child = command
            // Ctrl-C must reach only the importer: it would end the program first, and the import
            // would fail before it is stopped.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = ProgramLog::default();
        let pipe = child.stderr.take();
        let follow = {
            let log = log.clone();
            move || {
                // The pipe ends when the last process that can write to it has ended.
                if let Some(pipe) = pipe {
                    log.follow_pipe(pipe);
                }
                gone.cancel();
            }
        };
        match thread::Builder::new().spawn(follow) {
            Ok(reader) => Ok(Self { child, log, reader: Some(reader) }),
            Err(error) => {
                child.kill().and_then(|()| child.wait())?;
                Err(io::Error::other(ThreadStartError(error)))
            }
        }
    }

    /// Waits until `is_ready` is true, the program ends or the time limit is reached.
    pub(super) fn wait_for_ready(
        &mut self,
        stop: &CancellationToken,
        is_ready: impl Fn() -> bool,
    ) -> Result<ProgramState, SourceError> {
        let start = Instant::now();
        while !is_ready() {
            if stop.is_cancelled() {
                return Err(stopped_error());
            }
            if let Some(status) = self.child.try_wait().ok().flatten() {
                // A signal to all processes of a pod or a terminal may end the program before the
                // importer's own handler runs.
                if status.signal().is_some() {
                    thread::sleep(SIGNAL_DELAY);
                    if stop.is_cancelled() {
                        return Err(stopped_error());
                    }
                }
                return Ok(ProgramState::Ended(status));
            }
            if start.elapsed() > START_LIMIT {
                return Ok(ProgramState::Hanging);
            }
            thread::sleep(POLL);
        }
        Ok(ProgramState::Ready)
    }

    /// Ends the program. Does nothing if that was done already.
    pub(super) fn end_process(&mut self) {
        if self.reader.is_none() {
            return;
        }
        // `run-with-parent` ends nbdkit when its standard input ends.
        drop(self.child.stdin.take());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > END_LIMIT + KEEPER_LIMIT {
                tracing::warn!("nbdkit does not end, killing it");
                if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                    tracing::warn!("cannot kill nbdkit: {}", errno_text(&error));
                }
                break;
            }
            thread::sleep(POLL);
        }
        self.finish_log();
    }

    /// Waits for the rest of the log. The wait is limited, because a grandchild may hold the pipe
    /// open forever.
    fn finish_log(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        let start = Instant::now();
        while !reader.is_finished() && start.elapsed() < END_LIMIT {
            thread::sleep(POLL);
        }
        if reader.is_finished() && reader.join().is_err() {
            tracing::warn!("the thread that reads the log of nbdkit failed");
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.end_process();
    }
}
