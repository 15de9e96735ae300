//! Errors about an entry that do not yet include the position of the entry in the archive.

use stream::error::{ArchiveErrorKind, Error, TargetError};
use tar::TarReader;

/// An entry that is refused, or any other error of the data path.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum PlacementError {
    Refused(#[from] ArchiveErrorKind),
    Other(#[from] Error),
}

impl PlacementError {
    /// Returns the error with the offset and name of the current entry of `archive`.
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
