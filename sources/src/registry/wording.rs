//! Wording of failures, so that CDI's controllers know them.

use datapath::error::{SourceError, SourceErrorKind};

/// The controllers search for this text and report the reason `ImagePullFailed`.
const PULL_FAILED: &str = "failed to pull image: ";

/// A failure of the registry, of the way to it, or of what came from it.
pub(super) fn pulled(error: SourceError) -> SourceError {
    match error.kind() {
        SourceErrorKind::Stopped => error,
        kind => SourceError::new(kind, format!("{PULL_FAILED}{error}")).because(error),
    }
}

/// The same for the middle of a transfer, where the pod puts the text before whatever breaks.
pub(super) fn unprefixed(error: &SourceError) -> SourceError {
    let text = error.to_string();
    SourceError::new(error.kind(), text.strip_prefix(PULL_FAILED).unwrap_or(&text))
}
