//! Wording of errors that CDI's controllers recognise.

use stream::error::SourceError;

/// Prefix that the controllers search for, to report the reason `ImagePullFailed`.
const PULL_FAILED: &str = "failed to pull image";

/// Adds the prefix to a failure of the registry, of the connection to it, or of its data.
pub(super) fn pull_error(error: SourceError) -> SourceError {
    error.in_context(PULL_FAILED)
}

/// Removes the prefix of [`pull_error`] from `error`. In the middle of a transfer the pod itself
/// puts it before every failure.
pub(super) fn without_prefix(error: SourceError) -> SourceError {
    let prefix = format!("{PULL_FAILED}: ");
    match error.to_string().strip_prefix(&prefix) {
        Some(text) => SourceError::new(error.kind(), text),
        None => error,
    }
}
