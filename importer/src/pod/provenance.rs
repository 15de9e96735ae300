//! Labels that record where a volume's disk comes from. They are added only if the administrator
//! sets a variable, because CDI's importer has no such labels.

use std::collections::BTreeMap;

use program::env::EnvReader;
use program::names::MAX_LABEL;
use program::report::TerminationMessage;

/// Boolean; a value that cannot be parsed counts as false.
const PROVENANCE: &str = "CDI_WORKERS_PROVENANCE_LABELS";

// CDI copies labels from the claim of a populator to the final one only if their key matches
// `^([\w.]+\.kubevirt.io|kubevirt.io)/[\w.-]+$`: there is no dash in the domain.
const DIGEST: &str = "cdiworkers.kubevirt.io/source-digest";
const DISK_BYTES: &str = "cdiworkers.kubevirt.io/disk-bytes";
const VERSION: &str = "cdiworkers.kubevirt.io/importer-version";

/// True if the labels are wanted.
pub(super) fn wants_labels(reader: &mut EnvReader<'_>) -> bool {
    reader.lenient_bool(PROVENANCE)
}

/// True for a label that no image may set, because it states what this importer has verified.
pub(super) fn is_own_label(key: &str) -> bool {
    [DIGEST, DISK_BYTES, VERSION].contains(&key)
}

/// Facts about an import that is complete.
#[derive(Debug, Default)]
pub(super) struct Provenance {
    /// Verified digest of the bytes, or digest of the container image, `ALGORITHM:HEX`.
    pub(super) digest: Option<String>,
    /// Bytes of the virtual disk.
    pub(super) disk_bytes: Option<u64>,
}

impl Provenance {
    fn labels(&self) -> BTreeMap<&'static str, String> {
        let version = program::VERSION.split(' ').next().unwrap_or_default().to_owned();
        let digest = self.digest.as_ref().map(|digest| (DIGEST, label_of(digest)));
        let disk_bytes = self.disk_bytes.map(|bytes| (DISK_BYTES, bytes.to_string()));
        [Some((VERSION, version)), digest, disk_bytes].into_iter().flatten().collect()
    }

    /// Adds the labels to `message`. The image cannot set these labels. Its other labels take
    /// precedence if the message becomes too long.
    pub(super) fn add_labels(&self, message: &mut TerminationMessage) {
        for (key, value) in self.labels() {
            message.labels.insert(key.to_owned(), value);
            if message.to_json().is_err() {
                message.labels.remove(key);
                tracing::warn!(
                    "dropped the label {key}: it does not fit into the termination message"
                );
            }
        }
    }
}

/// Returns a digest as the value of a label: without a colon, and cut to 63 characters. The 56
/// digits of a SHA-256 that remain are enough to make a forgery impossible.
fn label_of(digest: &str) -> String {
    digest.replace(':', "-").chars().take(MAX_LABEL).collect()
}

#[cfg(test)]
mod tests {
    use program::names;

    use super::*;

    #[test]
    fn labels_are_valid_and_those_that_cdi_copies() {
        let facts = Provenance {
            digest: Some(format!("sha512:{}", "af".repeat(64))),
            disk_bytes: Some(u64::MAX),
        };
        let mut message = TerminationMessage::default();
        facts.add_labels(&mut message);
        assert_eq!(message.labels.len(), 3);
        for (key, value) in &message.labels {
            assert!(names::is_label_key(key) && names::is_label_value(value), "{key}={value}");
            let (domain, _) = key.split_once(".kubevirt.io/").unwrap();
            assert!(domain.bytes().all(|byte| byte.is_ascii_lowercase()), "{key}");
            assert!(is_own_label(key), "{key}");
        }
        assert_eq!(message.labels[DIGEST], format!("sha512-{}", "af".repeat(28)));
    }

    #[test]
    fn labels_of_the_image_stay_when_the_message_is_full() {
        let facts = Provenance { digest: Some("md5:00".to_owned()), disk_bytes: Some(1) };
        let text = Some("x".repeat(4020));
        let mut full = TerminationMessage { message: text, ..TerminationMessage::default() };
        full.labels.insert("kubevirt.io/a".to_owned(), "b".to_owned());
        facts.add_labels(&mut full);
        assert_eq!(full.labels.len(), 1, "{:?}", full.labels);
        full.to_json().unwrap();
    }
}
