//! Errors of an entry of which it is not known yet where in the archive it was.

use super::entries::Entries;
use crate::error::{ArchiveErrorKind, Error, TargetError};

/// A refusal, or any other error of the data path.
#[derive(Debug)]
pub(super) enum Unplaced {
    Refused(ArchiveErrorKind),
    Other(Error),
}

impl Unplaced {
    /// The error, with the place that `archive` is at.
    pub(super) fn blame(self, archive: &Entries) -> Error {
        match self {
            Self::Refused(kind) => archive.refuse(kind),
            Self::Other(error) => error,
        }
    }
}

impl From<ArchiveErrorKind> for Unplaced {
    fn from(kind: ArchiveErrorKind) -> Self {
        Self::Refused(kind)
    }
}

impl From<Error> for Unplaced {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<TargetError> for Unplaced {
    fn from(error: TargetError) -> Self {
        Self::Other(error.into())
    }
}
