//! The average rate at which an import fills its volume, and the remaining time.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::import_progress::ImportProgress;
use super::look::TargetObjects;
use super::object::{list_at, text_at};

/// Label selector for CDI's pods.
pub(crate) const PODS_OF_CDI: &str = "app=containerized-data-importer";

/// Name of the container that runs the import.
const IMPORTER: &str = "importer";

/// The average speed of an import since its pod started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FillPace {
    /// Number of bytes of the disk filled per second.
    pub(crate) rate: Option<u64>,
    /// Number of seconds until the end of the import at this speed.
    pub(crate) seconds_left: Option<u64>,
}

impl FillPace {
    /// Measures the speed since the pod started. Returns `None` if it cannot be determined. CDI
    /// reports the completed percentage of the whole volume. The start time is taken from the pod
    /// or, without access to pods, from the DataVolume.
    pub(crate) fn measure(found: &TargetObjects, pod: &Value, now: Timestamp) -> Option<Self> {
        let progress = ImportProgress::from_objects(found);
        // In a warm import, which has checkpoints, the percentage refers only to the changed data.
        let is_whole = found.checkpoints().is_empty();
        let percent = progress.percent.filter(|_| progress.is_running() && is_whole)?;
        let started = importer_start(pod).or_else(|| found.running_since())?;
        // The start time is from another machine's clock, so a difference of less than a second
        // means nothing.
        let seconds = seconds_between(started, now).filter(|seconds| *seconds > 0)?;
        Some(Self {
            rate: progress.filled_bytes().and_then(|filled| filled.checked_div(seconds)),
            seconds_left: seconds_left(percent, seconds),
        })
    }
}

/// Returns the start time of the container that runs the import.
fn importer_start(pod: &Value) -> Option<Timestamp> {
    let containers = list_at(pod, "/status/containerStatuses").iter();
    let mut importers =
        containers.filter(|container| text_at(container, "/name") == Some(IMPORTER));
    text_at(importers.next()?, "/state/running/startedAt")?.parse().ok()
}

/// Returns the seconds from `start` to `now`, or `None` if `start` is in the future.
pub(crate) fn seconds_between(start: Timestamp, now: Timestamp) -> Option<u64> {
    u64::try_from(now.as_second().checked_sub(start.as_second())?).ok()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and `as` saturates"
)]
fn seconds_left(percent: f64, seconds: u64) -> Option<u64> {
    (percent > 0.0).then(|| (seconds as f64 * (100.0 - percent) / percent).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const START: &str = "2026-01-01T00:00:00Z";

    fn import(progress: &str) -> TargetObjects {
        TargetObjects {
            data_volume: json!({
                "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}},
                "status": {"phase": "ImportInProgress", "progress": progress},
            }),
            // Larger than the disk by the overhead of a file system.
            claim: json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
        }
    }

    fn pod(container: &str, state: &Value) -> Value {
        let server =
            json!({"name": "server", "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}}});
        json!({"status": {"containerStatuses": [server, {"name": container, "state": state}]}})
    }

    fn fill_rate(found: &TargetObjects, pod: &Value, now: Timestamp) -> Option<u64> {
        FillPace::measure(found, pod, now)?.rate
    }

    #[test]
    fn the_time_left_follows_from_progress_and_start() {
        for (progress, left) in [("25.00%", Some(300)), ("100.00%", Some(0)), ("0.00%", None)] {
            let pace = FillPace::measure(&import(progress), &running(), after(100)).unwrap();
            assert_eq!(pace.seconds_left, left, "{progress}");
        }
        // Without access to pods the start time comes from the DataVolume.
        let mut found = import("50.00%");
        let running = |status: &str| json!([{"type": "Running", "status": status, "lastTransitionTime": START}]);
        found.data_volume["status"]["conditions"] = running("True");
        let pace = FillPace { rate: Some(1 << 20), seconds_left: Some(512) };
        assert_eq!(FillPace::measure(&found, &Value::Null, after(512)), Some(pace));
        found.data_volume["status"]["conditions"] = running("False");
        assert_eq!(FillPace::measure(&found, &Value::Null, after(512)), None);
    }

    fn running() -> Value {
        pod("importer", &json!({"running": {"startedAt": START}}))
    }

    fn after(seconds: i64) -> Timestamp {
        let start: Timestamp = START.parse().unwrap();
        Timestamp::from_second(start.as_second() + seconds).unwrap()
    }

    #[test]
    fn the_rate_follows_from_the_disk_size_and_the_running_time() {
        assert_eq!(fill_rate(&import("50.00%"), &running(), after(512)), Some(1 << 20));
        assert_eq!(fill_rate(&import("0.00%"), &running(), after(1)), Some(0));
        let claim = TargetObjects {
            data_volume: Value::Null,
            claim: json!({
                "metadata": {"annotations": {
                    "cdi.kubevirt.io/storage.pod.phase": "Running",
                    "cdi.kubevirt.io/storage.populator.progress": "25.00%",
                }},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            }),
        };
        assert_eq!(fill_rate(&claim, &running(), after(256)), Some(1 << 20));
    }

    #[test]
    fn without_all_figures_there_is_no_rate() {
        let known = import("50.00%");
        for seconds in [0, -5] {
            assert_eq!(fill_rate(&known, &running(), after(seconds)), None, "{seconds}");
        }
        assert_eq!(fill_rate(&import("N/A"), &running(), after(9)), None);
        for pod in [
            Value::Null,
            pod("cdi-upload-server", &json!({"running": {"startedAt": START}})),
            pod("importer", &json!({"waiting": {"reason": "CrashLoopBackOff"}})),
            pod("importer", &json!({"running": {"startedAt": "yesterday"}})),
        ] {
            assert_eq!(fill_rate(&known, &pod, after(9)), None, "{pod}");
        }
        let but = |part: &str, field: &str, value: Value| {
            let mut found = import("50.00%");
            found.data_volume[part][field] = value;
            found
        };
        let done = but("status", "phase", json!("Succeeded"));
        let warm = but("spec", "checkpoints", json!([{"current": "a", "previous": ""}]));
        for found in [done, warm] {
            assert_eq!(fill_rate(&found, &running(), after(9)), None, "{found:?}");
        }
    }
}
