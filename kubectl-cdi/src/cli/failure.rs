//! A command that failed: one sentence, and the exit code that goes with it.

use program::command_line::Failed;
use program::exit::Exit;
use program::signal::{Shutdown, Signal};
use program::start::CannotStart;

use crate::cluster::{ClusterError, ImportError};
use crate::image::NoImage;
use crate::remote::NoSize;
use crate::send::{NoProxy, SendFailed};

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandFailed {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Image(#[from] NoImage),
    #[error(transparent)]
    Size(#[from] NoSize),
    #[error(transparent)]
    Proxy(#[from] NoProxy),
    #[error(transparent)]
    Send(#[from] SendFailed),
    #[error("cannot write to stdout: {0}")]
    Output(String),
    #[error("stopped by {}{}", signal.name(), continued(continuation))]
    Signalled {
        signal: Signal,
        /// The command that continues.
        continuation: Option<String>,
    },
    #[error(transparent)]
    Start(#[from] CannotStart),
    #[error("{0}")]
    Internal(String),
}

fn continued(command: &Option<String>) -> String {
    command.as_ref().map_or_else(String::new, |command| {
        format!("; this goes on where it was: {command}")
    })
}

impl CommandFailed {
    /// Stopped, with nothing to be continued.
    pub(super) fn signalled(shutdown: &Shutdown) -> Self {
        Self::stopped(shutdown, None)
    }

    /// Stopped; the `continuation` goes on.
    pub(super) fn stopped(shutdown: &Shutdown, continuation: Option<String>) -> Self {
        Self::Signalled {
            signal: shutdown.signal().unwrap_or(Signal::Terminate),
            continuation,
        }
    }
}

impl Failed for CommandFailed {
    fn exit(&self) -> Exit {
        match self {
            Self::Internal(_) | Self::Output(_) | Self::Start(_) | Self::Size(NoSize::Internal(_)) => {
                Exit::Internal
            }
            Self::Proxy(NoProxy::Untrusted { .. }) => Exit::Target,
            Self::Usage(_) | Self::Import(_) | Self::Proxy(_) | Self::Size(NoSize::Unknown(_)) => Exit::Usage,
            Self::Size(NoSize::Refused(_)) => Exit::Image,
            Self::Cluster(error) | Self::Send(SendFailed::Cluster(error)) => error.exit(),
            Self::Image(error) | Self::Send(SendFailed::Image(error)) => match error {
                NoImage::Unreadable { .. } | NoImage::NoFile(_) | NoImage::Changed(_) | NoImage::Gone(_) => {
                    Exit::Source
                }
                NoImage::Useless { .. } | NoImage::Refused(_) => Exit::Image,
            },
            Self::Send(SendFailed::Refused(_)) => Exit::Image,
            Self::Send(SendFailed::TooSmall(_)) => Exit::NoSpace,
            Self::Send(_) => Exit::Target,
            Self::Signalled { signal, .. } => Exit::Signalled(*signal),
        }
    }
}
