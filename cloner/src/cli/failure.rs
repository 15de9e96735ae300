//! How a command fails: one sentence, and the exit code that goes with it.

use daemon::signal::{Shutdown, Signal};

use crate::clone::CloneError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandFailed {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Source(String),
    #[error("{0}")]
    Server(String),
    #[error("cannot write to stdout: {0}")]
    Output(String),
    #[error("stopped by {}", .0.name())]
    Signalled(Signal),
    #[error("{0}")]
    Internal(String),
}

impl CommandFailed {
    pub(super) fn signalled(shutdown: &Shutdown) -> Self {
        Self::Signalled(shutdown.signal().unwrap_or(Signal::Terminate))
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Internal(_) | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Source(_) => 3,
            Self::Server(_) => 4,
            Self::Signalled(signal) => signal.exit_code(),
        }
    }
}

impl From<CloneError> for CommandFailed {
    fn from(error: CloneError) -> Self {
        let sentence = error.to_string();
        match error {
            CloneError::Source(_) => Self::Source(sentence),
            CloneError::Transport(_) | CloneError::Refused(_) | CloneError::Early(_) => {
                Self::Server(sentence)
            }
            CloneError::Internal(_) => Self::Internal(sentence),
        }
    }
}
