//! The errors of the data path: one type for each stage, so that callers can branch on the stage
//! and the kind.

mod archive;
mod decode;
mod disk;
mod format;
mod source;

pub use self::archive::{ArchiveError, ArchiveErrorKind};
pub use self::decode::DecodeError;
pub use self::disk::{TargetError, TargetRefusedError, errno_text};
pub use self::format::FormatError;
pub use self::source::{SourceAdvice, SourceError, SourceErrorKind};
use crate::digest::ChecksumMismatchError;
use crate::stage::Stage;

/// Returns the kinds of errors that can occur in `stage`: a fixed set for the metric label `kind`.
pub const fn error_kinds(stage: Stage) -> &'static [&'static str] {
    match stage {
        Stage::Source => &SourceErrorKind::NAMES,
        Stage::Decode => &DecodeError::KINDS,
        Stage::Format => &FormatError::KINDS,
        Stage::Target => &TargetError::KINDS,
    }
}

/// The system refused to start a thread. Threads count towards the process limit (`pids`) of a pod
/// or node.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot start a thread of the transfer: {}; raise the process limit (pids of the pod or node, or ulimit -u)",
    errno_text(.0)
)]
pub struct ThreadStartError(#[from] pub std::io::Error);

/// Any failure of a transfer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source failed, and its own retries did not help.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A compressed layer could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The disk image is invalid, unsupported or refused.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The target could not be written.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// All bytes arrived, but their checksum is not the one that the user requested.
    #[error("checksum validation failed: {0}")]
    Checksum(#[from] ChecksumMismatchError),
    /// Not a single thread could be started for a part of the work.
    #[error(transparent)]
    Thread(#[from] ThreadStartError),
    /// The transfer was stopped on request, by a signal or a caller.
    #[error("the transfer was stopped before it was complete")]
    Stopped,
}

impl Error {
    /// True if the source does not look like a disk. Its bytes can still be stored as they are if
    /// the user asks for the format `verbatim`; each program says how.
    pub fn can_be_kept(&self) -> bool {
        matches!(
            self,
            Self::Format(FormatError::NotDisk(_)) | Self::Decode(DecodeError::Unsupported(_))
        )
    }

    /// The stage that failed. A checksum mismatch counts as an error of the source. A stop and a
    /// thread that could not be started belong to no stage.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Source(_) | Self::Checksum { .. } => Some(Stage::Source),
            Self::Decode(_) => Some(Stage::Decode),
            Self::Format(_) => Some(Stage::Format),
            Self::Target(_) => Some(Stage::Target),
            Self::Thread(_) | Self::Stopped => None,
        }
    }

    /// The stage that failed, and which of its [`error_kinds`] this error is. `None` for errors
    /// that belong to no stage, and for a source that was stopped.
    pub fn stage_and_kind(&self) -> Option<(Stage, &'static str)> {
        let kind = match self {
            Self::Source(error) if error.kind() == SourceErrorKind::Stopped => return None,
            Self::Source(error) => error.kind().name(),
            Self::Checksum { .. } => source::CHECKSUM,
            Self::Decode(error) => error.kind_name(),
            Self::Format(error) => error.kind_name(),
            Self::Target(error) => error.kind_name(),
            Self::Thread(_) | Self::Stopped => return None,
        };
        self.stage().map(|stage| (stage, kind))
    }
}

impl From<diskimage::Error> for Error {
    fn from(error: diskimage::Error) -> Self {
        FormatError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_source_error_keeps_its_cause_and_mentions_it_once() {
        let cut = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let failed = SourceError::with_context(SourceErrorKind::Io, "reading the disk", cut());
        assert_eq!(failed.to_string(), "reading the disk: connection reset");

        let failed = SourceError::with_context(failed.kind(), "server.example", failed);
        assert_eq!(failed.to_string(), "server.example: reading the disk: connection reset");
        let error = Error::from(failed);
        let first = error.source().and_then(std::error::Error::source);
        let first = first.and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(first.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionReset));

        let failed = SourceError::new(SourceErrorKind::Io, "the server is gone").with_cause(cut());
        assert_eq!(failed.to_string(), "the server is gone");
        assert!(failed.source().is_some());
    }
}
