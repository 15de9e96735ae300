//! What can go wrong with an entry, before it is known where in the archive it was.

use super::entries::Entries;
use super::error::ArchiveErrorKind;
use crate::error::{Error, TargetError};

/// A refusal, or any other error of the data path.
#[derive(Debug)]
pub(super) enum Failure {
    Refused(ArchiveErrorKind),
    Other(Error),
}

impl Failure {
    /// The error, with the place that `archive` is at.
    pub(super) fn blame(self, archive: &Entries) -> Error {
        match self {
            Self::Refused(kind) => archive.refuse(kind),
            Self::Other(error) => error,
        }
    }
}

impl From<ArchiveErrorKind> for Failure {
    fn from(kind: ArchiveErrorKind) -> Self {
        Self::Refused(kind)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        Self::Other(error.into())
    }
}
