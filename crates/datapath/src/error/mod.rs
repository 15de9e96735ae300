//! The errors of the data path: one enum a stage, so that callers can branch on the stage and the kind.

mod archive;
mod decode;
mod disk;
mod format;
mod source;

pub use self::archive::{ArchiveError, ArchiveErrorKind};
pub use self::decode::DecodeError;
pub use self::disk::{TargetError, TargetRefusedError, errno_text};
pub use self::format::{FormatError, TextPayload};
pub use self::source::{SourceError, SourceErrorKind};
use crate::observe::Stage;

/// The kinds of trouble that `stage` can have, a fixed set for the label `kind` of metrics.
pub const fn error_kinds(stage: Stage) -> &'static [&'static str] {
    match stage {
        Stage::Source => &SourceErrorKind::NAMES,
        Stage::Decode => &DecodeError::KINDS,
        Stage::Format => &FormatError::KINDS,
        Stage::Target => &TargetError::KINDS,
    }
}

/// A thread that the system does not give: the limit of a pod's or node's processes (`pids`)
/// counts threads.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot start a thread of the transfer: {}; raise the limit of processes (pids of the pod or node, or ulimit -u)",
    errno_text(.0)
)]
pub struct ThreadStartError(#[from] pub std::io::Error);

/// Any failure of a transfer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source failed for good (after its own retries).
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A compressed layer could not be undone.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The disk image could not be understood, or is refused.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The target could not be written.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// All bytes arrived but they are not the ones that were asked for.
    #[error("checksum validation failed: checksum mismatch: expected {expected}, calculated {calculated}")]
    Checksum {
        /// `algorithm:hex` as asked for.
        expected: String,
        /// `algorithm:hex` of what arrived.
        calculated: String,
    },
    /// Not even one thread could be started for a part of the work.
    #[error(transparent)]
    Thread(#[from] ThreadStartError),
    /// Somebody asked the transfer to stop (a signal, a caller).
    #[error("the transfer was stopped before it was complete")]
    Stopped,
}

impl Error {
    /// The stage to blame; a checksum mismatch is the source's, a stop and a missing thread are
    /// of no stage.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Source(_) | Self::Checksum { .. } => Some(Stage::Source),
            Self::Decode(_) => Some(Stage::Decode),
            Self::Format(_) => Some(Stage::Format),
            Self::Target(_) => Some(Stage::Target),
            Self::Thread(_) | Self::Stopped => None,
        }
    }

    /// The stage to blame, and which of its [`error_kinds`] of trouble this is; those of no stage are
    /// none.
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
    fn a_failed_source_keeps_its_cause_and_says_it_once() {
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
