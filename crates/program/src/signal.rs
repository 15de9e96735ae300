//! Handles SIGTERM, SIGINT and SIGHUP.
//!
//! The process of a pod has pid 1. The kernel ignores signals to pid 1 that have no handler, so a
//! handler must be installed. The first signal asks all tasks to stop and gives them time to clean
//! up. A second one ends the process immediately, unless it follows at once.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For this long after the first signal, further ones are ignored. GNU timeout sends its signal to
/// the process and then to the group of processes, so one process receives it twice.
const REPEATS: Duration = Duration::from_millis(500);

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM: the kubelet ends the pod.
    Terminate,
    /// SIGINT: Ctrl-C on a terminal.
    Interrupt,
    /// SIGHUP: the terminal was closed, or its connection broke.
    Hangup,
}

impl StopSignal {
    /// Returns the exit code by which shells report that a signal ended a process: 128 plus the
    /// signal number. It is never zero.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
            Self::Hangup => 128 + 1,
        }
    }

    /// Returns the name of the signal, with the prefix `SIG`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::Hangup => "SIGHUP",
        }
    }
}

/// The request to stop, shared by all tasks.
#[derive(Debug, Clone)]
pub struct ShutdownRequest {
    token: CancellationToken,
    first: Arc<OnceLock<StopSignal>>,
}

impl ShutdownRequest {
    /// Returns the token that is cancelled by the first signal. Pass a clone of it to every task
    /// that has to stop.
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns the first signal, if one was received.
    pub fn first_signal(&self) -> Option<StopSignal> {
        self.first.get().copied()
    }
}

/// Installs the handlers and starts a task that waits for signals as long as the runtime lives.
///
/// Must be called on a tokio runtime. From then on, SIGTERM, SIGINT and SIGHUP no longer end the
/// process by default. SIGHUP stays ignored if it was, as by nohup. SIGXFSZ does not end it either:
/// a write beyond the file size limit (RLIMIT_FSIZE) fails with an error instead.
pub fn watch_signals() -> io::Result<ShutdownRequest> {
    let mut signals = SignalStreams::install()?;
    let shutdown =
        ShutdownRequest { token: CancellationToken::new(), first: Arc::new(OnceLock::new()) };
    let seen = shutdown.clone();
    tokio::spawn(async move {
        let first = signals.next_signal().await;
        let counted_from = Instant::now() + REPEATS;
        tracing::info!("received {}: stopping", first.name());
        seen.first.get_or_init(|| first);
        seen.token.cancel();
        loop {
            let second = signals.next_signal().await;
            if Instant::now() >= counted_from {
                tracing::warn!("second signal {}: ending without clean-up", second.name());
                std::process::exit(second.exit_code().into());
            }
        }
    });
    Ok(shutdown)
}

/// The signals that arrive.
#[cfg(unix)]
struct SignalStreams {
    terminate: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl SignalStreams {
    fn install() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        // The handler stays installed after its stream is dropped.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hangup: ends_at_hangup().then(|| signal(SignalKind::hangup())).transpose()?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next_signal(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            Some(()) = async { self.hangup.as_mut()?.recv().await } => StopSignal::Hangup,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}

/// Returns true if SIGHUP would end the process, and false if it is ignored or nobody can tell
/// (outside of Linux). Its bit in the mask of ignored signals is the lowest (proc_pid_status(5),
/// `SigIgn`).
#[cfg(unix)]
fn ends_at_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 0)
}

/// The console's events: Ctrl-C and Ctrl-Break interrupt; a closed window, a logoff and a shutdown
/// terminate. Windows ends the process some seconds after those three.
#[cfg(windows)]
struct SignalStreams {
    ctrl_c: tokio::signal::windows::CtrlC,
    ctrl_break: tokio::signal::windows::CtrlBreak,
    close: tokio::signal::windows::CtrlClose,
    logoff: tokio::signal::windows::CtrlLogoff,
    shutdown: tokio::signal::windows::CtrlShutdown,
}

#[cfg(windows)]
impl SignalStreams {
    fn install() -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};

        Ok(Self {
            ctrl_c: ctrl_c()?,
            ctrl_break: ctrl_break()?,
            close: ctrl_close()?,
            logoff: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    async fn next_signal(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.ctrl_c.recv() => StopSignal::Interrupt,
            _ = self.ctrl_break.recv() => StopSignal::Interrupt,
            _ = self.close.recv() => StopSignal::Terminate,
            _ = self.logoff.recv() => StopSignal::Terminate,
            _ = self.shutdown.recv() => StopSignal::Terminate,
        }
    }
}
