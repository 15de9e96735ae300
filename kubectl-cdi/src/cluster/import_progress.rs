//! How far an import is, as its objects say.

use std::fmt;

use serde_json::Value;

use super::look::TargetObjects;
use super::object::{printable_line, text_at};

/// How far an import is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportProgress {
    /// CDI's name for where it is, such as `ImportInProgress`.
    pub phase: String,
    /// The part that is done, of 100.
    pub percent: Option<f64>,
    /// Bytes of the disk that is filled.
    pub disk_bytes: Option<u64>,
    /// How often the pod has begun again.
    pub restarts: u64,
    /// What the pod says, or what is being waited for.
    pub sentence: Option<String>,
}

impl ImportProgress {
    /// As far as it stands in the objects.
    pub(crate) fn from_objects(found: &TargetObjects) -> Self {
        let none = Value::Null;
        let volume = found.data_volume.as_ref().unwrap_or(&none);
        let progress =
            text_at(volume, "/status/progress").or_else(|| found.of_claim("storage.populator.progress"));
        let phase = found.phase().or_else(|| found.of_claim("storage.pod.phase"));
        Self {
            phase: printable_line(phase.unwrap_or("Pending")),
            percent: progress.and_then(parse_percent),
            disk_bytes: found.disk_bytes(),
            restarts: found.restart_count(),
            sentence: found.last_message(),
        }
    }

    /// Bytes of the disk that are done, as far as both numbers are known.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is not negative, and not more than `disk_bytes`"
    )]
    pub fn filled_bytes(&self) -> Option<u64> {
        Some((self.disk_bytes? as f64 * self.percent? / 100.0) as u64)
    }

    /// True while bytes are fetched.
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

/// The number in `45.20%`; CDI writes `N/A` where it knows none.
fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim_end_matches('%').parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_is_what_the_data_volume_says() {
        let found = TargetObjects {
            data_volume: Some(json!({"status": {
                "phase": "ImportInProgress",
                "progress": "45.20%",
                "restartCount": 2,
                "conditions": [{"type": "Running", "message": "Unable to connect\nto source"}],
            }})),
            claim: None,
        };
        let said = ImportProgress::from_objects(&found).to_string();
        assert_eq!(said, "ImportInProgress 45.20 %, restarted 2 times: Unable to connect to source");
        assert_eq!(ImportProgress::from_objects(&TargetObjects::default()).to_string(), "Pending");
    }

    #[test]
    fn a_claim_says_it_by_annotations() {
        let found = TargetObjects {
            data_volume: None,
            claim: Some(json!({"metadata": {"annotations": {
                "cdi.kubevirt.io/storage.pod.phase": "Running",
                "cdi.kubevirt.io/storage.pod.restarts": "1",
                "cdi.kubevirt.io/storage.populator.progress": "7.5%",
            }}})),
        };
        assert_eq!(ImportProgress::from_objects(&found).to_string(), "Running 7.50 %, restarted once");
    }

    #[test]
    fn what_is_no_percentage_is_none() {
        for text in ["N/A", "", "%", "NaN%", "-1%", "1000%"] {
            assert_eq!(parse_percent(text), None, "{text}");
        }
        assert_eq!(parse_percent("100.0%"), Some(100.0));
    }
}
