//! A command that failed: one sentence, and the exit code that goes with it.

use program::command_line::FailedCommand;
use program::exit::ExitReason;
use program::signal::{ShutdownRequest, StopSignal};
use program::start::ProcessStartError;

use crate::cluster::{ClusterError, ImportError};
use crate::image::ImageFileError;
use crate::remote::DiskSizeError;
use crate::send::{ProxySetupError, UploadSendError};

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginCommandError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Image(#[from] ImageFileError),
    #[error(transparent)]
    Size(#[from] DiskSizeError),
    #[error(transparent)]
    Proxy(#[from] ProxySetupError),
    #[error(transparent)]
    Send(#[from] UploadSendError),
    #[error("cannot write to stdout: {0}")]
    Output(String),
    #[error("stopped by {}{}", signal.name(), continuation_text(continuation))]
    Signalled {
        signal: StopSignal,
        /// The command that continues.
        continuation: Option<String>,
    },
    #[error(transparent)]
    Start(#[from] ProcessStartError),
    #[error("{0}")]
    Internal(String),
}

fn continuation_text(command: &Option<String>) -> String {
    command.as_ref().map_or_else(String::new, |command| format!("; this goes on where it was: {command}"))
}

impl PluginCommandError {
    /// Stopped, with nothing to be continued.
    pub(super) fn from_signal(shutdown: &ShutdownRequest) -> Self {
        Self::with_continuation(shutdown, None)
    }

    /// Stopped; the `continuation` goes on.
    pub(super) fn with_continuation(shutdown: &ShutdownRequest, continuation: Option<String>) -> Self {
        Self::Signalled { signal: shutdown.first_signal().unwrap_or(StopSignal::Terminate), continuation }
    }
}

impl FailedCommand for PluginCommandError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Internal(_) | Self::Output(_) | Self::Start(_) | Self::Size(DiskSizeError::Internal(_)) => {
                ExitReason::Internal
            }
            Self::Proxy(ProxySetupError::Untrusted { .. }) => ExitReason::Target,
            Self::Usage(_) | Self::Import(_) | Self::Proxy(_) | Self::Size(DiskSizeError::Unknown(_)) => {
                ExitReason::Usage
            }
            Self::Size(DiskSizeError::Refused(_)) => ExitReason::Image,
            Self::Cluster(error) | Self::Send(UploadSendError::Cluster(error)) => error.exit_reason(),
            Self::Image(error) | Self::Send(UploadSendError::Image(error)) => match error {
                ImageFileError::Unreadable { .. }
                | ImageFileError::NoFile(_)
                | ImageFileError::Changed(_)
                | ImageFileError::Gone(_) => ExitReason::Source,
                ImageFileError::Useless { .. } | ImageFileError::Refused(_) => ExitReason::Image,
            },
            Self::Send(UploadSendError::Refused(_)) => ExitReason::Image,
            Self::Send(UploadSendError::TooSmall(_)) => ExitReason::NoSpace,
            Self::Send(_) => ExitReason::Target,
            Self::Signalled { signal, .. } => ExitReason::Signalled(*signal),
        }
    }
}
