//! The average rate at which an import fills its volume.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::follow::ImportProgress;
use super::look::TargetObjects;
use super::object::{list_at, text_at};

/// The label of CDI's pods.
pub(crate) const PODS_OF_CDI: &str = "app=containerized-data-importer";

/// The name of the container that imports.
const IMPORTER: &str = "importer";

/// Bytes of the volume that were filled a second since its pod runs, where that can be told: the pod says how much of the whole volume
/// is done, and since when it runs.
pub(crate) fn fill_rate(found: &TargetObjects, pod: &Value, now: Timestamp) -> Option<u64> {
    let progress = ImportProgress::from_objects(found);
    // Of a warm import the percentage is that of what has changed.
    let is_whole = found.checkpoints().is_empty();
    let percent = progress.percent.filter(|_| progress.is_running() && is_whole)?;
    let containers = list_at(pod, "/status/containerStatuses").iter();
    let mut importers = containers.filter(|container| text_at(container, "/name") == Some(IMPORTER));
    let started = text_at(importers.next()?, "/state/running/startedAt")?;
    let started: Timestamp = started.parse().ok()?;
    // Clocks of two machines: a second is the least that can mean anything.
    let seconds = u64::try_from(now.as_second().checked_sub(started.as_second())?).ok()?;
    let filled = percentage_of(found.disk_bytes()?, percent);
    filled.checked_div(seconds)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and not more than `bytes`"
)]
fn percentage_of(bytes: u64, percent: f64) -> u64 {
    (bytes as f64 * percent / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const START: &str = "2026-01-01T00:00:00Z";

    fn import(progress: &str) -> TargetObjects {
        TargetObjects {
            data_volume: Some(json!({
                "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}},
                "status": {"phase": "ImportInProgress", "progress": progress},
            })),
            // With a file system's overhead, which no disk fills.
            claim: Some(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})),
        }
    }

    fn pod(container: &str, state: &Value) -> Value {
        let server = json!({"name": "server", "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}}});
        json!({"status": {"containerStatuses": [server, {"name": container, "state": state}]}})
    }

    fn running() -> Value {
        pod("importer", &json!({"running": {"startedAt": START}}))
    }

    fn after(seconds: i64) -> Timestamp {
        let start: Timestamp = START.parse().unwrap();
        Timestamp::from_second(start.as_second() + seconds).unwrap()
    }

    #[test]
    fn a_rate_is_the_part_of_the_disk_by_the_time_of_the_container() {
        assert_eq!(fill_rate(&import("50.00%"), &running(), after(512)), Some(1 << 20));
        assert_eq!(fill_rate(&import("0.00%"), &running(), after(1)), Some(0));
        let claim = TargetObjects {
            data_volume: None,
            claim: Some(json!({
                "metadata": {"annotations": {
                    "cdi.kubevirt.io/storage.pod.phase": "Running",
                    "cdi.kubevirt.io/storage.populator.progress": "25.00%",
                }},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            })),
        };
        assert_eq!(fill_rate(&claim, &running(), after(256)), Some(1 << 20));
    }

    #[test]
    fn where_something_is_not_known_there_is_no_rate() {
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
            found.data_volume.as_mut().unwrap()[part][field] = value;
            found
        };
        let done = but("status", "phase", json!("Succeeded"));
        let warm = but("spec", "checkpoints", json!([{"current": "a", "previous": ""}]));
        for found in [done, warm] {
            assert_eq!(fill_rate(&found, &running(), after(9)), None, "{found:?}");
        }
    }
}
