//! The path of an upload on the proxy.

use program::cdi;
use serde::{Deserialize, Serialize};

/// The path of an upload that has begun. The server chooses it, but it is written to a file and
/// used in requests, so it must consist of safe characters only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct UploadLocation(String);

/// The error for a path that cannot be the path of an upload.
#[derive(Debug, thiserror::Error)]
#[error(
    "the upload proxy returned the location {path:?}, which cannot be an upload: expected {}/ followed by letters, digits, - or _",
    cdi::RESUMABLE
)]
pub(crate) struct UploadLocationError {
    path: String,
}

impl UploadLocation {
    /// Returns the path.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UploadLocation {
    type Error = UploadLocationError;

    fn try_from(path: String) -> Result<Self, UploadLocationError> {
        match cdi::resumable_id(&path) {
            Some(_) => Ok(Self(path)),
            None => Err(UploadLocationError { path: crate::cluster::printable_line(&path) }),
        }
    }
}

impl From<UploadLocation> for String {
    fn from(location: UploadLocation) -> Self {
        location.0
    }
}
