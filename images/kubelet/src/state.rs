//! The end of a container, and the verdict of CDI's controllers on it.

use serde_json::Value;

/// Bytes, and lines, of a log that kubelet takes for a termination message (Kubernetes: `TerminationMessagePolicy`).
const FALLBACK: (usize, usize) = (2048, 80);

/// A terminated container, as its pod's status has it.
#[derive(Debug, Clone)]
pub struct Terminated {
    /// Exit code; 137 after a kill.
    pub code: i32,
    /// Killed for memory.
    pub out_of_memory: bool,
    /// The termination message; of a failure that left none, the end of the log.
    pub message: String,
    /// All of the log.
    pub log: String,
}

impl Terminated {
    /// With what it left in `/dev/termination-log`, by the policy `FallbackToLogsOnError`.
    pub(crate) fn new(code: i32, out_of_memory: bool, left: String, log: String) -> Self {
        let message = if left.is_empty() && code != 0 { end_of(&log) } else { left };
        Self { code, out_of_memory, message, log }
    }

    /// The import controller's verdict on the importer's end (contract §5.3). Fails the test where the controller would get stuck.
    pub fn import(&self) -> Verdict {
        if self.code != 0 {
            return Verdict::Failed(self.message.clone());
        }
        let report = self.report().unwrap_or_default();
        let message = text(&report, "message");
        if flag(&report, "scratchSpaceRequired") {
            Verdict::NeedsScratch
        } else if message.contains("checksum mismatch") {
            Verdict::ChecksumMismatch(message)
        } else {
            Verdict::succeeded(&report)
        }
    }

    /// The upload controller's verdict on the upload server's end (contract §5.4): without a JSON message it never gets on.
    pub fn upload(&self) -> Verdict {
        if self.code != 0 {
            return Verdict::Failed(self.message.clone());
        }
        match self.report() {
            Some(report) => Verdict::succeeded(&report),
            None => panic!("the upload controller cannot read {:?}", self.message),
        }
    }

    /// VMware: the version of the library and the host that it reads from, which the import controller makes annotations of.
    pub fn vddk(&self) -> Option<(String, String)> {
        let report = self.report()?;
        let info = report.get("vddkInfo")?;
        Some((text(info, "Version"), text(info, "Host")))
    }

    fn report(&self) -> Option<Value> {
        serde_json::from_str(&self.message).ok()
    }
}

/// A controller's conclusion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Phase Succeeded.
    Succeeded {
        /// The running condition's message.
        message: String,
        /// Annotation `storage.preallocation`.
        preallocated: bool,
        /// Added to the claim.
        labels: Vec<(String, String)>,
    },
    /// The pod is made anew with a scratch claim.
    NeedsScratch,
    /// Phase Failed, never tried again.
    ChecksumMismatch(String),
    /// The container is started again; what the user is shown.
    Failed(String),
}

impl Verdict {
    /// Success with this message, without preallocation and labels.
    pub fn success(message: &str) -> Self {
        Self::Succeeded { message: message.to_owned(), preallocated: false, labels: Vec::new() }
    }

    fn succeeded(report: &Value) -> Self {
        let labels = report.get("labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        Self::Succeeded {
            message: text(report, "message"),
            preallocated: flag(report, "preallocationApplied"),
            labels: labels
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
        }
    }
}

fn text(report: &Value, key: &str) -> String {
    let text = report.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn flag(report: &Value, key: &str) -> bool {
    report.get(key).and_then(Value::as_bool) == Some(true)
}

fn end_of(log: &str) -> String {
    let (bytes, lines) = FALLBACK;
    let from = log.len().saturating_sub(bytes);
    let tail = String::from_utf8_lossy(log.as_bytes().get(from..).unwrap_or_default()).into_owned();
    let skipped = tail.lines().count().saturating_sub(lines);
    tail.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}
