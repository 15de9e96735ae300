//! Reasons why a download fails.

use std::io;
use std::path::{Path, PathBuf};

use program::command_line::FailedCommand;
use program::exit::ExitReason;
use stream::error::errno_text;

use crate::cluster::{ClaimReadError, ClusterError};

/// Reasons why a download failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownloadError {
    #[error(transparent)]
    Claim(#[from] ClaimReadError),
    #[error("{} already exists: delete it, or choose another name", .0.display())]
    Exists(PathBuf),
    #[error("another process is downloading into {}", .0.display())]
    Busy(PathBuf),
    #[error("{} is not a regular file of its own: delete it, or choose another name", .0.display())]
    NoFile(PathBuf),
    #[error(
        "{} is not the beginning of this disk: delete it, or choose another name", .0.display()
    )]
    Unrelated(PathBuf),
    #[error("cannot {action} {}: {}", path.display(), errno_text(error))]
    Local { action: &'static str, path: PathBuf, error: io::Error },
    #[error("the volume cannot be read: {0}")]
    Unreadable(String),
    #[error(
        "the pod that reads the volume has ended: {0}; does the image contain cdi-cloner with the command serve? See --image"
    )]
    PodEnded(String),
    #[error(
        "the pod that reads the volume is not running after {seconds} s: {waiting}; check --image, or give a longer --timeout"
    )]
    NotRunning { seconds: u64, waiting: String },
    #[error("the pod that reads the volume was removed {0} times without progress")]
    Removed(u32),
    #[error("no progress for {seconds} s: {words}; the same command resumes the download")]
    Stalled { seconds: u64, words: String },
    /// The pod does not follow the protocol.
    #[error("the pod that reads the volume answers with {0}; check --image")]
    Protocol(String),
    #[error(
        "the disk changed {0} times while it was read: stop what writes to it, and download again"
    )]
    Changing(u32),
    #[error(
        "the disk has changed since its first {0} bytes were written to the pipe: download again"
    )]
    Pipe(u64),
    #[error("{0}")]
    Internal(String),
}

impl DownloadError {
    /// Creates the error for a failed operation on a local file.
    pub(crate) fn local(action: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Local { action, path: path.to_owned(), error }
    }
}

impl From<ClusterError> for DownloadError {
    fn from(error: ClusterError) -> Self {
        Self::Claim(error.into())
    }
}

impl FailedCommand for DownloadError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Claim(error) => error.exit_reason(),
            Self::Local { error, .. }
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                ExitReason::NoSpace
            }
            Self::Exists(_)
            | Self::Busy(_)
            | Self::NoFile(_)
            | Self::Unrelated(_)
            | Self::Local { .. } => ExitReason::Target,
            Self::Internal(_) => ExitReason::Internal,
            _ => ExitReason::Source,
        }
    }
}

/// The end of one attempt.
#[derive(Debug)]
pub(super) enum DownloadAttemptError {
    /// Another attempt may succeed. Contains the cause.
    Passing(String),
    /// The disk in the volume differs from what this machine has. The next attempt begins where
    /// the two are still equal.
    Differs,
    Final(DownloadError),
}

impl From<DownloadError> for DownloadAttemptError {
    fn from(error: DownloadError) -> Self {
        match error {
            DownloadError::Claim(ClaimReadError::Cluster(error)) if error.may_pass() => {
                Self::Passing(error.to_string())
            }
            error => Self::Final(error),
        }
    }
}

impl From<ClusterError> for DownloadAttemptError {
    fn from(error: ClusterError) -> Self {
        DownloadError::from(error).into()
    }
}
