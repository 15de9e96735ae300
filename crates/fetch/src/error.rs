//! Constructors of errors that several kinds of sources share.

use std::io;

use stream::error::{SourceError, SourceErrorKind, errno_text};

/// Creates an error for invalid input, which no retry can fix. `message` is the whole sentence.
pub fn invalid_error(message: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Invalid, message)
}

/// Creates the error of a wait that the stop token cancelled.
pub fn stopped_error() -> SourceError {
    SourceError::new(SourceErrorKind::Stopped, "stopped while reading the source")
}

/// Creates an error of the operating system for the local file `name`.
pub(crate) fn io_error(action: &str, name: &str, error: &io::Error) -> SourceError {
    let message = format!("{action} {name}: {}", errno_text(error));
    SourceError::new(SourceErrorKind::Io, message)
}
