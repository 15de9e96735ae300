//! The progress of an import, read from its objects in the cluster.

use std::fmt;

use super::look::TargetObjects;
use super::object::{printable_line, text_at};

/// The progress of an import.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportProgress {
    /// The phase, named as in CDI, such as `ImportInProgress`.
    pub phase: String,
    /// The progress in percent.
    pub percent: Option<f64>,
    /// Size of the complete disk in bytes.
    pub disk_bytes: Option<u64>,
    /// Number of restarts of the pod.
    pub restarts: u64,
    /// The last message of the pod, or the reason for waiting.
    pub sentence: Option<String>,
}

impl ImportProgress {
    /// Reads the progress from a DataVolume, or from the annotations of a claim.
    pub(crate) fn from_objects(found: &TargetObjects) -> Self {
        let progress = text_at(&found.data_volume, "/status/progress")
            .or_else(|| found.of_claim("storage.populator.progress"));
        let phase = found.phase().or_else(|| found.of_claim("storage.pod.phase"));
        Self {
            phase: printable_line(phase.unwrap_or("Pending")),
            percent: progress.and_then(parse_percent),
            disk_bytes: found.disk_bytes(),
            restarts: found.restart_count(),
            sentence: found.last_message(),
        }
    }

    /// Returns how many bytes of the disk are filled, if both the size and the percentage are
    /// known.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is not negative, and not more than `disk_bytes`"
    )]
    pub fn filled_bytes(&self) -> Option<u64> {
        Some((self.disk_bytes? as f64 * self.percent? / 100.0) as u64)
    }

    /// Returns true while the pod transfers data.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase.as_str(), "ImportInProgress" | "Running" | "Paused")
    }
}

impl fmt::Display for ImportProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.phase)?;
        if let Some(percent) = self.percent {
            write!(f, " {percent:.2} %")?;
        }
        match self.restarts {
            0 => {}
            1 => f.write_str(", restarted once")?,
            restarts => write!(f, ", restarted {restarts} times")?,
        }
        match &self.sentence {
            Some(sentence) => write!(f, ": {sentence}"),
            None => Ok(()),
        }
    }
}

/// Parses a percentage such as `45.20%`. CDI writes `N/A` if the progress is unknown.
fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim_end_matches('%').parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn progress_is_read_from_the_data_volume() {
        let found = TargetObjects {
            data_volume: json!({"status": {
                "phase": "ImportInProgress",
                "progress": "45.20%",
                "restartCount": 2,
                "conditions": [{"type": "Running", "message": "Unable to connect\nto source"}],
            }}),
            claim: Value::Null,
        };
        let said = ImportProgress::from_objects(&found).to_string();
        assert_eq!(
            said,
            "ImportInProgress 45.20 %, restarted 2 times: Unable to connect to source"
        );
        assert_eq!(ImportProgress::from_objects(&TargetObjects::default()).to_string(), "Pending");
    }

    #[test]
    fn progress_is_read_from_the_annotations_of_a_claim() {
        let found = TargetObjects {
            data_volume: Value::Null,
            claim: json!({"metadata": {"annotations": {
                "cdi.kubevirt.io/storage.pod.phase": "Running",
                "cdi.kubevirt.io/storage.pod.restarts": "1",
                "cdi.kubevirt.io/storage.populator.progress": "7.5%",
            }}}),
        };
        assert_eq!(
            ImportProgress::from_objects(&found).to_string(),
            "Running 7.50 %, restarted once"
        );
    }

    #[test]
    fn malformed_percentages_are_ignored() {
        for text in ["N/A", "", "%", "NaN%", "-1%", "1000%"] {
            assert_eq!(parse_percent(text), None, "{text}");
        }
        assert_eq!(parse_percent("100.0%"), Some(100.0));
    }
}
