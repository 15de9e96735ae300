//! The path of an upload on the proxy.

use program::cdi;
use serde::{Deserialize, Serialize};

/// The path of an upload that has begun. The server chooses it, but it is written to a file and
/// used in requests, so it must consist of safe characters only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct UploadLocation(String);

impl UploadLocation {
    /// Returns the path.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UploadLocation {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        if cdi::resumable_id(&path).is_some() {
            return Ok(Self(path));
        }
        let path = crate::cluster::printable_line(&path);
        Err(format!(
            "the upload proxy returned the location {path:?}, which cannot be an upload: expected {}/ followed by letters, digits, - \
             or _",
            cdi::RESUMABLE
        ))
    }
}
