//! Wording of failures, so that CDI's controllers know them.

use datapath::error::{SourceError, SourceErrorKind};

/// The controllers search for this text and report the reason `ImagePullFailed`.
const PULL_FAILED: &str = "failed to pull image: ";

/// A failure of the registry, of the way to it, or of what came from it.
pub(super) fn pull_error(error: SourceError) -> SourceError {
    match error.kind() {
        SourceErrorKind::Stopped => error,
        kind => SourceError::new(kind, format!("{PULL_FAILED}{error}"))
            .with_plain_words(&format!("{PULL_FAILED}{}", error.plain_words()))
            .with_cause(error),
    }
}

/// `error` without the text of [`pull_error`], for the middle of a transfer: there the pod puts that text before every failure.
pub(super) fn without_prefix(error: &SourceError) -> SourceError {
    let text = error.to_string();
    SourceError::new(error.kind(), text.strip_prefix(PULL_FAILED).unwrap_or(&text))
}
