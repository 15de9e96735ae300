//! Starts and watches a program, and ends it with the importer.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fetch::error::{invalid_error, stopped_error};
use program::env::{NamedStrings, ProcessEnv};
use stream::error::{SourceError, ThreadStartError, errno_text};
use tokio_util::sync::CancellationToken;

use super::log::ProgramLog;
use super::nbdkit::NBDKIT;

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

/// A running program.
pub(super) struct RunningProgram {
    /// A keeper, which runs the program and ends it when the keeper's input ends: at the latest
    /// when the importer ends.
    child: Child,
    /// The thread that reads the log.
    reader: Option<JoinHandle<()>>,
}

impl RunningProgram {
    /// Starts `command`, a keeper, with the environment that it needs, but without the keys and
    /// passwords of the pod. Its standard error goes to `log`. Cancels `gone` when the program ends.
    pub(super) fn start(
        mut command: Command,
        log: &ProgramLog,
        gone: CancellationToken,
    ) -> Result<Self, SourceError> {
        for (name, _) in SECRET_PREFIXES.iter().flat_map(|prefix| ProcessEnv.with_prefix(prefix)) {
            command.env_remove(name);
        }
        let failed = |error: io::Error| {
            let reason = errno_text(&error);
            invalid_error(format!("cannot start {NBDKIT}, which reads VMware disks: {reason}"))
        };
        let mut child = command
            // Ctrl-C must reach only the importer: it would end the program first, and the import
            // would fail before it is stopped.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (log, pipe) = (log.clone(), child.stderr.take());
        let reader = thread::Builder::new().spawn(move || {
            // The pipe ends when the last process that can write to it has ended.
            if let Some(pipe) = pipe {
                log.follow_pipe(pipe);
            }
            gone.cancel();
        });
        match reader {
            Ok(reader) => Ok(Self { child, reader: Some(reader) }),
            Err(error) => {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                Err(failed(io::Error::other(ThreadStartError(error))))
            }
        }
    }

    /// Waits until `is_ready` is true, given how the program ended if it has. If the program ends
    /// before that, or the time limit is reached, ends the program and returns what happened. The
    /// log is complete then.
    pub(super) fn wait_for_ready(
        &mut self,
        stop: &CancellationToken,
        is_ready: impl Fn(Option<ExitStatus>) -> bool,
    ) -> Result<Option<String>, SourceError> {
        let mut ended = None;
        wait_until(START_LIMIT, || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some() || stop.is_cancelled() || is_ready(None)
        });
        if is_ready(ended) {
            return Ok(None);
        }
        // A signal to all processes of a pod or a terminal may end the program before the
        // importer's own handler runs.
        if ended.is_some_and(|status| status.signal().is_some()) {
            thread::sleep(SIGNAL_DELAY);
        }
        if stop.is_cancelled() {
            return Err(stopped_error());
        }
        self.end_process();
        Ok(Some(match ended {
            Some(status) => format!("ended ({status})"),
            None => format!("is not ready after {} s", START_LIMIT.as_secs()),
        }))
    }

    /// Ends the program. Does nothing if that was done already.
    pub(super) fn end_process(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        // `run-with-parent` ends nbdkit when its standard input ends.
        drop(self.child.stdin.take());
        if !wait_until(END_LIMIT + KEEPER_LIMIT, || !matches!(self.child.try_wait(), Ok(None))) {
            tracing::warn!("nbdkit does not end, killing it");
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                tracing::warn!("cannot kill nbdkit: {}", errno_text(&error));
            }
        }
        // The wait for the rest of the log is limited, because a grandchild may hold the pipe open
        // forever.
        if wait_until(END_LIMIT, || reader.is_finished()) && reader.join().is_err() {
            tracing::warn!("the thread that reads the log of nbdkit failed");
        }
    }
}

/// Waits until `is_done` is true, or returns false after `limit`.
fn wait_until(limit: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_done() {
        if start.elapsed() > limit {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.end_process();
    }
}
