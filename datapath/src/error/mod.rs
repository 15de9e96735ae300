//! The errors of the data path: one enum a stage, so that callers can branch on the stage and the kind.

mod archive;
mod decode;
mod format;
mod source;
mod target;

use std::fmt;

pub use self::archive::{ArchiveError, ArchiveErrorKind};
pub use self::decode::DecodeError;
pub use self::format::FormatError;
pub use self::source::{SourceError, SourceErrorKind};
pub use self::target::{TargetError, TargetRefused, errno_text};

/// The four nouns of the data path; also the label of log fields, metrics and exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Bytes did not arrive: not found, refused, cut, changed.
    Source,
    /// A compressed layer is corrupt, unsupported or over its limits.
    Decode,
    /// The disk image is invalid, unsupported or refers to another file.
    Format,
    /// The disk that is written: no space, too small, I/O error.
    Target,
}

impl Stage {
    /// The lower-case noun.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Decode => "decode",
            Self::Format => "format",
            Self::Target => "target",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    /// Somebody asked the transfer to stop (a signal, a caller).
    #[error("the transfer was stopped before it was complete")]
    Stopped,
}

impl Error {
    /// The stage to blame; a checksum mismatch is the source's, a stop is of no stage.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Source(_) | Self::Checksum { .. } => Some(Stage::Source),
            Self::Decode(_) => Some(Stage::Decode),
            Self::Format(_) => Some(Stage::Format),
            Self::Target(_) => Some(Stage::Target),
            Self::Stopped => None,
        }
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
        let failed = SourceError::caused(SourceErrorKind::Io, "reading the disk", cut());
        assert_eq!(failed.to_string(), "reading the disk: connection reset");

        let failed = SourceError::caused(failed.kind(), "server.example", failed);
        assert_eq!(
            failed.to_string(),
            "server.example: reading the disk: connection reset"
        );
        let error = Error::from(failed);
        let first = error.source().and_then(std::error::Error::source);
        let first = first.and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(
            first.map(std::io::Error::kind),
            Some(std::io::ErrorKind::ConnectionReset)
        );

        let failed = SourceError::new(SourceErrorKind::Io, "the server is gone").because(cut());
        assert_eq!(failed.to_string(), "the server is gone");
        assert!(failed.source().is_some());
    }
}
