//! The end of a container, and how CDI's controllers judge it.

use serde_json::Value;

/// Most bytes and lines of a log that kubelet uses as the termination message (Kubernetes:
/// `TerminationMessagePolicy`).
const FALLBACK: (usize, usize) = (2048, 80);

/// A terminated container, as in its pod's status.
#[derive(Debug, Clone)]
pub struct Terminated {
    /// The exit code: 137 after a SIGKILL.
    pub code: i32,
    /// True if the container was killed for lack of memory.
    pub out_of_memory: bool,
    /// The termination message.
    pub message: String,
    /// The complete log.
    pub log: String,
}

impl Terminated {
    /// How the import controller judges the importer's end (contract §5.3).
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

    /// How the upload controller judges the upload server's end (contract §5.4). Without a JSON
    /// message that controller would get stuck, so the test fails.
    pub fn upload(&self) -> Verdict {
        if self.code != 0 {
            return Verdict::Failed(self.message.clone());
        }
        match self.report() {
            Some(report) => Verdict::succeeded(&report),
            None => panic!("the upload controller cannot read {:?}", self.message),
        }
    }

    /// For VMware: the library's version and the host, which the import controller writes to
    /// annotations.
    pub fn vddk(&self) -> Option<(String, String)> {
        let report = self.report()?;
        let info = report.get("vddkInfo")?;
        Some((text(info, "Version"), text(info, "Host")))
    }

    fn report(&self) -> Option<Value> {
        serde_json::from_str(&self.message).ok()
    }
}

/// A controller's judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The claim's phase becomes Succeeded.
    Succeeded {
        /// The message of the running condition.
        message: String,
        /// The annotation `storage.preallocation`.
        preallocated: bool,
        /// Labels that are added to the claim.
        labels: Vec<(String, String)>,
    },
    /// The controller makes a new pod with a scratch claim.
    NeedsScratch,
    /// The claim's phase becomes Failed, and the import is never retried.
    ChecksumMismatch(String),
    /// The container is restarted. The text is shown to the user.
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

/// Returns what the policy `FallbackToLogsOnError` makes the message of a failure.
pub(crate) fn end_of(log: &str) -> String {
    let (bytes, lines) = FALLBACK;
    let from = log.len().saturating_sub(bytes);
    let tail = String::from_utf8_lossy(log.as_bytes().get(from..).unwrap_or_default()).into_owned();
    let skipped = tail.lines().count().saturating_sub(lines);
    tail.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}
