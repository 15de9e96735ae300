//! Errors of the commands. Each consists of one sentence for the user and an exit code.

use program::command_line::FailedCommand;
use program::exit::ExitReason;
use program::signal::{ShutdownRequest, StopSignal};
use program::start::ProcessStartError;

use crate::cluster::{ClusterError, ImportError};
use crate::evidence::PinningError;
use crate::image::ImageFileError;
use crate::receive::DownloadError;
use crate::remote::DiskSizeError;
use crate::send::{ProxySetupError, UploadSendError};

/// The failure of a command.
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
    Evidence(#[from] PinningError),
    #[error(transparent)]
    Proxy(#[from] ProxySetupError),
    #[error(transparent)]
    Send(#[from] UploadSendError),
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error("cannot write to stdout: {0}")]
    Output(String),
    #[error("stopped by {}{}", signal.name(), advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}")))]
    Signalled {
        signal: StopSignal,
        /// Tells the user what is still running, or which command resumes the job.
        advice: Option<String>,
    },
    #[error(transparent)]
    Start(#[from] ProcessStartError),
    #[error("{0}")]
    Internal(String),
}

impl PluginCommandError {
    /// Creates the error of a command that was stopped by a signal and left nothing to resume.
    pub(super) fn from_signal(shutdown: &ShutdownRequest) -> Self {
        Self::with_advice(shutdown, None)
    }

    /// Creates the error of a command that was stopped by a signal. `advice` tells the user what
    /// to do next.
    pub(super) fn with_advice(shutdown: &ShutdownRequest, advice: Option<String>) -> Self {
        Self::Signalled { signal: shutdown.first_signal().unwrap_or(StopSignal::Terminate), advice }
    }
}

impl FailedCommand for PluginCommandError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Internal(_)
            | Self::Output(_)
            | Self::Start(_)
            | Self::Size(DiskSizeError::Internal(_)) => ExitReason::Internal,
            Self::Proxy(ProxySetupError::Untrusted { .. }) => ExitReason::Target,
            Self::Usage(_)
            | Self::Import(_)
            | Self::Proxy(_)
            | Self::Size(DiskSizeError::Unknown(_)) => ExitReason::Usage,
            Self::Evidence(error) => error.exit_reason(),
            Self::Size(DiskSizeError::Refused(_)) => ExitReason::Image,
            Self::Size(DiskSizeError::NotFound(_)) => ExitReason::Source,
            Self::Cluster(error) | Self::Send(UploadSendError::Cluster(error)) => {
                error.exit_reason()
            }
            Self::Download(error) => error.exit_reason(),
            Self::Image(error) | Self::Send(UploadSendError::Image(error)) => match error {
                ImageFileError::StandardInput | ImageFileError::Address(_) => ExitReason::Usage,
                ImageFileError::Unreadable { .. }
                | ImageFileError::NoFile(_)
                | ImageFileError::Changed(_)
                | ImageFileError::Gone(_) => ExitReason::Source,
                ImageFileError::Useless { .. }
                | ImageFileError::NotArchive { .. }
                | ImageFileError::Refused(_) => ExitReason::Image,
                ImageFileError::Checksum { .. } => ExitReason::Checksum,
                ImageFileError::Thread(_) => ExitReason::Internal,
            },
            Self::Send(UploadSendError::Refused(_)) => ExitReason::Image,
            Self::Send(UploadSendError::TooSmall(_)) => ExitReason::NoSpace,
            Self::Send(_) => ExitReason::Target,
            Self::Signalled { signal, .. } => ExitReason::Signalled(*signal),
        }
    }
}
