//! A command that failed: one sentence, and the exit code that goes with it.

use program::command_line::FailedCommand;
use program::exit::ExitReason;
use program::signal::{ShutdownRequest, StopSignal};
use program::start::ProcessStartError;

use crate::clone::CloneError;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClonerCommandError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Source(String),
    #[error("{0}")]
    Server(String),
    #[error("cannot write to stdout: {0}")]
    Output(String),
    #[error("stopped by {}", .0.name())]
    Signalled(StopSignal),
    #[error(transparent)]
    Start(#[from] ProcessStartError),
    #[error("{0}")]
    Internal(String),
}

impl ClonerCommandError {
    pub(super) fn from_shutdown(shutdown: &ShutdownRequest) -> Self {
        Self::Signalled(shutdown.first_signal().unwrap_or(StopSignal::Terminate))
    }
}

impl FailedCommand for ClonerCommandError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Internal(_) | Self::Output(_) | Self::Start(_) => ExitReason::Internal,
            Self::Usage(_) => ExitReason::Usage,
            Self::Source(_) => ExitReason::Source,
            // It is where the volume goes.
            Self::Server(_) => ExitReason::Target,
            Self::Signalled(signal) => ExitReason::Signalled(*signal),
        }
    }
}

impl From<CloneError> for ClonerCommandError {
    fn from(error: CloneError) -> Self {
        let sentence = error.to_string();
        match error {
            CloneError::Source(_) => Self::Source(sentence),
            CloneError::Transport(_) | CloneError::Refused(_) | CloneError::Early(_) => {
                Self::Server(sentence)
            }
            CloneError::Thread(_) | CloneError::Internal(_) => Self::Internal(sentence),
        }
    }
}
