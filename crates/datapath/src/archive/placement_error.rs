//! Errors of an entry of which it is not known yet where in the archive it was.

use super::entries::TarReader;
use crate::error::{ArchiveErrorKind, Error, TargetError};

/// A refusal, or any other error of the data path.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum PlacementError {
    Refused(#[from] ArchiveErrorKind),
    Other(#[from] Error),
}

impl PlacementError {
    /// The error, with the place that `archive` is at.
    pub(super) fn into_error(self, archive: &TarReader) -> Error {
        match self {
            Self::Refused(kind) => archive.entry_error(kind),
            Self::Other(error) => error,
        }
    }
}

impl From<TargetError> for PlacementError {
    fn from(error: TargetError) -> Self {
        Self::Other(error.into())
    }
}
