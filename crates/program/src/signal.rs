//! Handles SIGTERM and SIGINT.
//!
//! The process of a pod has pid 1. The kernel ignores signals to pid 1 that have no handler, so a
//! handler must be installed. The first signal asks all tasks to stop and gives them time to clean
//! up. The second one ends the process immediately.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM: the kubelet ends the pod.
    Terminate,
    /// SIGINT: Ctrl-C on a terminal.
    Interrupt,
}

impl StopSignal {
    /// Returns the exit code by which shells report that a signal ended a process: 128 plus the
    /// signal number. It is never zero.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
        }
    }

    /// Returns the name of the signal, with the prefix `SIG`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
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
/// Must be called on a tokio runtime. From then on, SIGTERM and SIGINT no longer end the process
/// by default. Neither does SIGXFSZ: a write beyond the file size limit (RLIMIT_FSIZE) fails with
/// an error instead.
pub fn watch_signals() -> io::Result<ShutdownRequest> {
    let mut signals = SignalStreams::install()?;
    let shutdown =
        ShutdownRequest { token: CancellationToken::new(), first: Arc::new(OnceLock::new()) };
    let seen = shutdown.clone();
    tokio::spawn(async move {
        loop {
            let signal = signals.next_signal().await;
            if seen.first.set(signal).is_err() {
                tracing::warn!("second signal {}: ending without clean-up", signal.name());
                std::process::exit(signal.exit_code().into());
            }
            tracing::info!("received {}: stopping", signal.name());
            seen.token.cancel();
        }
    });
    Ok(shutdown)
}

/// The signals that arrive.
#[cfg(unix)]
struct SignalStreams {
    terminate: tokio::signal::unix::Signal,
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
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next_signal(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
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
