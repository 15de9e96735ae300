//! nbdkit as a child process that ends with the importer, which starts no other program.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fetch::error::{invalid_error, stopped_error};
use program::env::{NamedStrings, ProcessEnv};
use stream::error::{SourceError, ThreadStartError, errno_text};
use tokio_util::sync::CancellationToken;

use super::body::VddkReadState;
use super::log::ProgramLog;
use super::nbdkit::{NBDKIT, PrivateFolder, prepare_command};

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

/// A running nbdkit. Dropping it ends nbdkit, and the log is complete afterwards.
pub(super) struct NbdkitProcess {
    /// A keeper, which runs nbdkit and ends it when the keeper's input ends: at the latest when the
    /// importer ends.
    child: Child,
    log: ProgramLog,
    /// The thread that reads the log.
    reader: Option<JoinHandle<()>>,
    folder: PrivateFolder,
}

impl NbdkitProcess {
    /// Starts nbdkit for the disk that `reading` describes, and waits until it listens. It gets the
    /// environment that it needs, but not the keys and passwords of the pod.
    pub(super) fn start(reading: &VddkReadState) -> Result<Self, SourceError> {
        let (mut command, folder) = prepare_command(reading)?;
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
        let (log, gone, pipe) = (reading.log.clone(), reading.gone.clone(), child.stderr.take());
        let mut nbdkit = Self { child, log: log.clone(), reader: None, folder };
        let reader = thread::Builder::new().spawn(move || {
            // The pipe ends when the last process that can write to it has ended.
            if let Some(pipe) = pipe {
                log.follow_pipe(pipe);
            }
            gone.cancel();
        });
        let reader = reader.map_err(|error| failed(io::Error::other(ThreadStartError(error))))?;
        nbdkit.reader = Some(reader);
        nbdkit.wait_until_ready(&reading.network.stop)?;
        // nbdkit has read the password by now. The importer would leave the file behind if it were
        // killed.
        if let Err(error) = fs::remove_file(nbdkit.folder.password_path()) {
            tracing::warn!("cannot remove the password for nbdkit: {}", errno_text(&error));
        }
        Ok(nbdkit)
    }

    /// Returns the path of nbdkit's socket.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.socket_path()
    }

    fn wait_until_ready(&mut self, stop: &CancellationToken) -> Result<(), SourceError> {
        // Connecting to the socket instead would make nbdkit complain about that connection.
        let (listens, mut ended) = (self.folder.pid_path(), None);
        wait_until(START_LIMIT, || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some() || stop.is_cancelled() || listens.exists()
        });
        if listens.exists() {
            return Ok(());
        }
        // A signal to all processes of a pod or a terminal may end the program before the
        // importer's own handler runs.
        if ended.is_some_and(|status| status.signal().is_some()) {
            thread::sleep(SIGNAL_DELAY);
        }
        if stop.is_cancelled() {
            return Err(stopped_error());
        }
        // The log is complete only when the pipe is at its end.
        self.end_process();
        let state = match ended {
            Some(status) => format!("ended ({status})"),
            None => format!("is not ready after {} s", START_LIMIT.as_secs()),
        };
        Err(invalid_error(format!("nbdkit {state}: {}", self.log.last_errors())))
    }

    /// Ends nbdkit. Does nothing if that was done already.
    fn end_process(&mut self) {
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
        if let Some(reader) = self.reader.take()
            && wait_until(END_LIMIT, || reader.is_finished())
            && reader.join().is_err()
        {
            tracing::warn!("the thread that reads the log of nbdkit failed");
        }
    }
}

impl Drop for NbdkitProcess {
    fn drop(&mut self) {
        self.end_process();
        self.log.log_lines();
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
