//! How failures are worded, so that CDI's controllers know them.

use datapath::error::{SourceError, SourceErrorKind};

/// The controllers search for this text and report the reason `ImagePullFailed`.
const PULL_FAILED: &str = "failed to pull image: ";

/// A failure of the registry, of the way to it, or of what came from it.
pub(super) fn pulled(error: SourceError) -> SourceError {
    match error.kind() {
        SourceErrorKind::Stopped => error,
        kind => SourceError::new(kind, format!("{PULL_FAILED}{error}")),
    }
}

/// The error of every wait that the stop token ended.
pub(super) fn stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Stopped, "stopped while reading the source")
}
