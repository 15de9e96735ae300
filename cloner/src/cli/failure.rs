//! A command that failed: one sentence, and the exit code that goes with it.

use program::command_line::Failed;
use program::exit::Exit;
use program::signal::{Shutdown, Signal};
use program::start::CannotStart;

use crate::clone::CloneError;

/// A command that failed.
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
    #[error(transparent)]
    Start(#[from] CannotStart),
    #[error("{0}")]
    Internal(String),
}

impl CommandFailed {
    pub(super) fn signalled(shutdown: &Shutdown) -> Self {
        Self::Signalled(shutdown.signal().unwrap_or(Signal::Terminate))
    }
}

impl Failed for CommandFailed {
    fn exit(&self) -> Exit {
        match self {
            Self::Internal(_) | Self::Output(_) | Self::Start(_) => Exit::Internal,
            Self::Usage(_) => Exit::Usage,
            Self::Source(_) => Exit::Source,
            // It is where the volume goes.
            Self::Server(_) => Exit::Target,
            Self::Signalled(signal) => Exit::Signalled(*signal),
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
            CloneError::Thread(_) | CloneError::Internal(_) => Self::Internal(sentence),
        }
    }
}
