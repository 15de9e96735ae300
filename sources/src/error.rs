//! The error that every kind of source has.

use datapath::error::{SourceError, SourceErrorKind};

/// The failure of something that no second attempt makes better: `message` is the whole sentence.
pub(crate) fn invalid(message: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Invalid, message)
}
