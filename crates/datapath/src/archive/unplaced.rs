//! Errors of an entry of which it is not known yet where in the archive it was.

use super::entries::Entries;
use crate::error::{ArchiveErrorKind, Error, TargetError};

/// A refusal, or any other error of the data path.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum Unplaced {
    Refused(#[from] ArchiveErrorKind),
    Other(#[from] Error),
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

impl From<TargetError> for Unplaced {
    fn from(error: TargetError) -> Self {
        Self::Other(error.into())
    }
}
