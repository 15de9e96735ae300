//! Writes the termination message, which the kubelet stores when a container ends.
//!
//! CDI's controllers parse it as JSON after exit code 0 and show it as text after any other code.
//! A process that succeeds therefore writes JSON, and one that fails writes text.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::env::NamedStrings;
use crate::paths::PodPaths;

/// Maximum length in bytes of a termination message; the kubelet truncates longer ones
/// (`MaxContainerTerminationMessageLength` in `k8s.io/kubernetes/pkg/kubelet/container`).
const MAX_LENGTH_BYTES: usize = 4096;

/// The structured message. Fields are written in this order; unset fields are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminationMessage {
    /// The controller should restart the pod with a scratch volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_space_required: Option<bool>,
    /// The space of the target was allocated in advance, so the target is not sparse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation_applied: Option<bool>,
    /// The upload server ended because its deadline passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_passed: Option<bool>,
    /// Library version and host of a VDDK import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vddk_info: Option<VddkInfo>,
    /// Labels for the DataVolume, taken from the environment variables of a container disk.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A message for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Information that the VDDK library reports about itself and the host that it reads from. Without
/// the library, the version is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VddkInfo {
    /// Version of the VDDK library.
    pub version: String,
    /// Name of the ESXi host.
    pub host: String,
}

/// The reason why the termination message was not written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReportError(String);

impl From<serde_json::Error> for ReportError {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("the termination message cannot be written as JSON: {error}"))
    }
}

impl TerminationMessage {
    /// Converts the message to a single line of JSON. Fails if the kubelet would truncate it.
    pub fn to_json(&self) -> Result<String, ReportError> {
        let json = printable::escape_json(&serde_json::to_string(self)?).into_owned();
        if json.len() > MAX_LENGTH_BYTES {
            let length = json.len();
            return Err(ReportError(format!(
                "Termination message length {length} exceeds maximum length of {MAX_LENGTH_BYTES} bytes"
            )));
        }
        Ok(json)
    }

    /// Removes labels, from the last one on, until the message can be written. Returns the removed
    /// labels. Fails, without any label left, if the rest of the message is too long.
    pub fn drop_excess_labels(&mut self) -> Result<BTreeMap<String, String>, ReportError> {
        let mut labels: Vec<_> = std::mem::take(&mut self.labels).into_iter().collect();
        self.to_json()?;
        let fits = |count: &usize| {
            let labels = labels.iter().take(*count).cloned().collect();
            Self { labels, ..self.clone() }.to_json().is_ok()
        };
        // A binary search: an image may have so many labels that encoding the message for each of
        // them would take long.
        let counts: Vec<usize> = (1..=labels.len()).collect();
        let kept = counts.partition_point(fits);
        let excess = labels.split_off(kept);
        self.labels = labels.into_iter().collect();
        Ok(excess.into_iter().collect())
    }
}

/// Logs `message` as JSON and writes it to `path`. A message that is too long is not written.
pub fn write_json(path: &Path, message: &TerminationMessage) -> Result<(), ReportError> {
    let json = message.to_json()?;
    // This line is logged because log scrapers look for it.
    tracing::info!("{json}");
    write_report(path, &json)
}

/// Writes `text` to `path` as one line. An empty text leaves the file unchanged.
///
/// The kubelet would cut off the end of a long text, so its middle is removed instead. The
/// beginning names the step that failed, and the end states the cause, which the controllers
/// search for (`no space left on device`).
pub fn write_text(path: &Path, text: &str) -> Result<(), ReportError> {
    if text.is_empty() {
        return Ok(());
    }
    let line = text.replace(['\n', '\r'], " ");
    write_report(path, &without_middle(&printable::escape_text(&line)))
}

/// Logs why a pod fails, and writes it as the termination message.
pub fn log_failure(env: &dyn NamedStrings, sentence: &str) {
    tracing::error!("{sentence}");
    if let Err(error) = write_text(&PodPaths::from_env(env).termination_log(), sentence) {
        tracing::error!("{error}");
    }
}

fn without_middle(line: &str) -> String {
    const GAP: &str = " [...] ";
    const HALF: usize = (MAX_LENGTH_BYTES - GAP.len()) / 2;
    if line.len() <= MAX_LENGTH_BYTES {
        return line.to_owned();
    }
    // A character that crosses a cut position is removed with the middle.
    let (head, _) = line.split_at(line.floor_char_boundary(HALF));
    let (_, tail) = line.split_at(line.ceil_char_boundary(line.len() - HALF));
    [head, GAP, tail].concat()
}

fn write_report(path: &Path, line: &str) -> Result<(), ReportError> {
    // The file is written in place: the kubelet mounts this very file, so it cannot be replaced by
    // another one.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| {
        let path = path.display();
        ReportError(format!("cannot write the termination message to {path}: {error}"))
    })
}

/// Joins `error` and its causes with `: `, as Go does for wrapped errors. If an error already ends
/// with the text of its cause, the cause is not repeated.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn json_has_the_keys_in_order_and_omits_what_is_unset() {
        let all = TerminationMessage {
            scratch_space_required: Some(false),
            preallocation_applied: Some(true),
            deadline_passed: Some(true),
            vddk_info: Some(VddkInfo { version: "8.0.1".to_owned(), host: "esx".to_owned() }),
            labels: BTreeMap::from([
                ("b".to_owned(), "2".to_owned()),
                ("a".to_owned(), "1".to_owned()),
            ]),
            message: Some("Import Complete".to_owned()),
        };
        assert_eq!(
            all.to_json().unwrap(),
            concat!(
                r#"{"scratchSpaceRequired":false,"preallocationApplied":true,"deadlinePassed":true,"#,
                r#""vddkInfo":{"Version":"8.0.1","Host":"esx"},"labels":{"a":"1","b":"2"},"#,
                r#""message":"Import Complete"}"#
            )
        );
        assert_eq!(TerminationMessage::default().to_json().unwrap(), "{}");
    }

    #[test]
    fn json_is_written_up_to_the_limit_and_refused_above() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let frame = r#"{"message":""}"#.len();
        let write = |length| {
            let message = Some("x".repeat(length - frame));
            write_json(&path, &TerminationMessage { message, ..TerminationMessage::default() })
        };
        write(MAX_LENGTH_BYTES).unwrap();
        let error = write(MAX_LENGTH_BYTES + 1).unwrap_err().to_string();
        assert_eq!(error, "Termination message length 4097 exceeds maximum length of 4096 bytes");
        // The old message is untouched.
        assert_eq!(fs::read(&path).unwrap().len(), MAX_LENGTH_BYTES);
    }

    #[test]
    fn labels_fill_the_message_to_its_last_byte_and_no_further() {
        let full = |count: usize| TerminationMessage {
            labels: (0..count)
                .map(|number| (format!("label-{number:04}"), "\u{e4}\"".to_owned()))
                .collect(),
            ..TerminationMessage::default()
        };
        for padding in 0..40 {
            let rest = TerminationMessage { message: Some("x".repeat(padding)), ..full(0) };
            let mut message = TerminationMessage { labels: full(400).labels, ..rest.clone() };
            let excess = message.drop_excess_labels().unwrap();
            assert_eq!(message.labels.len() + excess.len(), 400);
            assert!(message.labels.keys().next_back() < excess.keys().next());
            message.to_json().unwrap();
            let (key, value) = excess.into_iter().next().unwrap();
            message.labels.insert(key, value);
            assert!(message.to_json().is_err(), "one more label fits");
        }
        let mut small = full(2);
        assert!(small.drop_excess_labels().unwrap().is_empty());
        assert_eq!(small, full(2));
        let mut long =
            TerminationMessage { message: Some("x".repeat(MAX_LENGTH_BYTES)), ..full(1) };
        long.drop_excess_labels().unwrap_err();
    }

    #[test]
    fn text_becomes_one_private_line_that_keeps_its_beginning_and_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        write_text(&path, "").unwrap();
        assert!(!path.exists());
        for text in ["a much longer message", "one\ntwo\n\u{202e}three", ""] {
            write_text(&path, text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), r"one two \u{202e}three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let middle = "é".repeat(MAX_LENGTH_BYTES);
        let long = format!("Unable to process data: {middle}: no space left on device");
        write_text(&path, &long).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!((MAX_LENGTH_BYTES - 4..=MAX_LENGTH_BYTES).contains(&text.len()), "{}", text.len());
        assert!(text.starts_with("Unable to process data: é"), "{text}");
        assert!(text.ends_with("é: no space left on device"), "{text}");
        let error = write_text(folder.path(), "text").unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }

    #[test]
    fn an_error_chain_states_every_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("unable to write to file")]
        struct Outer(#[source] Middle);
        #[derive(Debug, thiserror::Error)]
        #[error("disk: {0}")]
        struct Middle(#[source] io::Error);
        let error = Outer(Middle(io::Error::other("no space left on device")));
        assert_eq!(error_chain(&error), "unable to write to file: disk: no space left on device");
    }
}
