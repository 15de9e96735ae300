//! SIGTERM and SIGINT.
//!
//! A pod's process is pid 1, for which the kernel ignores signals without a handler, so there must be one.
//! The first signal asks all tasks to stop and lets them clean up; the second ends the process at once.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{self, SignalKind};
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
    /// The exit code by which shells tell that a signal ended a process: 128 + its number. Never zero.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
        }
    }

    /// The name as in `kill -l`, with `SIG`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

/// The request to stop, as all tasks can see it.
#[derive(Debug, Clone)]
pub struct ShutdownRequest {
    token: CancellationToken,
    first: Arc<OnceLock<StopSignal>>,
}

impl ShutdownRequest {
    /// Cancelled by the first signal. Clone it into whatever has to stop.
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.token
    }

    /// The first signal, once there was one.
    pub fn first_signal(&self) -> Option<StopSignal> {
        self.first.get().copied()
    }
}

/// Installs the handlers, and a task that waits for signals as long as the runtime lives.
///
/// Must be called on a tokio runtime. From here on a signal no longer ends the process by itself; nor does a write beyond
/// the limit of a file's size (RLIMIT_FSIZE), which is an error of that write then.
pub fn watch_signals() -> io::Result<ShutdownRequest> {
    // The handler stays when this is dropped.
    drop(unix::signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    let mut terminate = unix::signal(SignalKind::terminate())?;
    let mut interrupt = unix::signal(SignalKind::interrupt())?;
    let shutdown = ShutdownRequest { token: CancellationToken::new(), first: Arc::new(OnceLock::new()) };
    let seen = shutdown.clone();
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => StopSignal::Terminate,
                _ = interrupt.recv() => StopSignal::Interrupt,
            };
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
