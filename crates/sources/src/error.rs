//! Errors that several kinds of sources have.

use std::io;

use datapath::error::{SourceError, SourceErrorKind, errno_text};

/// The failure of something that no second attempt makes better: `message` is the whole sentence.
pub(crate) fn invalid_error(message: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Invalid, message)
}

/// An error of the system about `name`, a file of this machine.
pub(crate) fn io_error(action: &str, name: &str, error: &io::Error) -> SourceError {
    let message = format!("{action} {name}: {}", errno_text(error));
    SourceError::new(SourceErrorKind::Io, message)
}
