//! UIDs of objects. They are validated, because a UID becomes the name of a file on this machine.

use serde_json::Value;

use super::destination::VolumeTarget;
use super::object::{printable_line, text_at};
use crate::error::PluginError;

/// Maximum number of characters in a UID; Kubernetes' own UIDs have 36.
const MAX_CHARS: usize = 64;

/// A UID that consists only of letters, digits and `-`, so that it is safe as part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectUid(String);

impl ObjectUid {
    /// Returns the UID of `object`. Fails with an error about `target` if the UID is not valid.
    pub(crate) fn from_object(object: &Value, target: &VolumeTarget) -> Result<Self, PluginError> {
        let uid = text_at(object, "/metadata/uid").unwrap_or_default();
        Self::parse(uid).ok_or_else(|| {
            let uid = printable_line(uid);
            PluginError::target(format!(
                "the API server returned {uid:?} as the uid of {target}: expected 1 to 64 letters, digits and -; choose another \
                 cluster with --context"
            ))
        })
    }

    /// Returns `None` if `text` is not a valid UID.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        let is_valid = (1..=MAX_CHARS).contains(&text.len()) && text.bytes().all(is_plain);
        is_valid.then(|| Self(text.to_owned()))
    }

    /// Returns the UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_uid_must_be_one_plain_word() {
        let target: VolumeTarget = "pvc/disk".parse().unwrap();
        let read = |uid: &str| ObjectUid::from_object(&json!({"metadata": {"uid": uid}}), &target);
        let longest = "a".repeat(MAX_CHARS);
        for uid in ["5f5a1c9e-0d2b-4c1e-9d57-1f6d0f0b8f9a", "A-1", &longest] {
            assert_eq!(read(uid).unwrap().as_str(), uid);
        }
        for uid in ["", ".", "..", "a/b", "/a", "a.b", "a b", "a\n", "é", &(longest + "a")] {
            assert!(read(uid).is_err(), "{uid}");
        }
        let error = ObjectUid::from_object(&json!({"metadata": {"uid": 7}}), &target).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the API server returned \"\" as the uid of pvc/disk: expected 1 to 64 letters, digits and -; choose another cluster \
             with --context"
        );
    }
}
