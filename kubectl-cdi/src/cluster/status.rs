//! The table of `kubectl cdi status`: the volumes that CDI fills, with their progress and
//! warnings.

use std::collections::HashMap;

use k8s_openapi::jiff::Timestamp;
use program::exit::ExitReason;
use program::progress::BinaryBytes;
use serde_json::{Value, json};
use stream::memory::MemoryGrant;

use super::Cluster;
use super::destination::{VolumeTarget, VolumeTargetKind};
use super::final_reason::final_reason;
use super::import_progress::ImportProgress;
use super::look::TargetObjects;
use super::object::{printable_line, printable_text, text_at};
use super::pods::{self, FailedAttempt};
use super::rate::{FillPace, PODS_OF_CDI, seconds_between};
use super::resource::ResourceKind;
use super::waiting::WaitReason;
use crate::error::PluginError;

/// Maximum number of events shown per volume.
const MOST_EVENTS: usize = 5;

/// A Kubernetes event: a message about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEvent {
    /// True for warnings; other events report normal operation.
    pub(crate) is_warning: bool,
    /// Time of the event, as written by Kubernetes.
    pub time: String,
    /// The object that the event is about, such as `Pod/NAME`.
    pub object: String,
    /// The reason in one word, such as `FailedScheduling`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// Name of the object, without its kind.
    name: String,
    namespace: String,
}

impl ClusterEvent {
    fn from_object(event: &Value) -> Option<Self> {
        let at = |pointer| text_at(event, pointer).map(printable_line);
        let name = at("/involvedObject/name")?;
        let (reason, message) = (at("/reason").unwrap_or_default(), text_at(event, "/message"));
        // CDI reports successes as warnings, and conflicts between its controllers, which retry.
        let is_harmless = reason == "Completed"
            || reason.ends_with("Succeeded")
            || message.is_some_and(|message| message.contains("the object has been modified"));
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        Some(Self {
            is_warning: text_at(event, "/type") == Some("Warning") && !is_harmless,
            time: times.into_iter().find_map(at).unwrap_or_default(),
            object: format!("{}/{name}", at("/involvedObject/kind").unwrap_or_default()),
            reason,
            message: printable_text(message)?,
            name,
            namespace: at("/involvedObject/namespace").unwrap_or_default(),
        })
    }
}

/// The state of one volume, which is a row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusRow {
    /// The volume.
    pub target: VolumeTarget,
    /// The namespace, if volumes of all namespaces are shown.
    pub namespace: Option<String>,
    /// The kind of the source, such as `http`.
    pub source: Option<String>,
    /// Seconds since the volume was created.
    pub age: Option<u64>,
    /// The progress of the import or the upload.
    pub progress: ImportProgress,
    /// The size of the claim in bytes, or the size of the disk until the claim exists.
    pub bytes: Option<u64>,
    /// Number of bytes of the disk filled per second since the pod started, if known.
    pub rate: Option<u64>,
    /// Number of seconds until the import ends at this rate.
    pub seconds_left: Option<u64>,
    /// The last failed attempt of the pod, if it was restarted.
    pub failure: Option<FailedAttempt>,
    /// The most recent warnings about the volume, its claims and its pod, newest first.
    pub events: Vec<ClusterEvent>,
}

impl Cluster {
    /// Reads the state of one volume, or of all volumes in the namespace that are filled by CDI.
    pub async fn list_status(
        &self,
        target: Option<&VolumeTarget>,
    ) -> Result<Vec<StatusRow>, PluginError> {
        // The memory of the objects is counted until all rows are built.
        let mut memory = MemoryGrant::default();
        let all = match target {
            Some(target) => vec![(target.clone(), self.find_existing(target).await?)],
            None => self.list_all(&mut memory).await?,
        };
        // Sends one request for all volumes, instead of one for each.
        let warnings = self.list_events("type=Warning").await;
        let has_pod = |(_, found): &(_, TargetObjects)| {
            let progress = ImportProgress::from_objects(found);
            progress.is_running() || progress.restarts > 0
        };
        let pods = if all.iter().any(has_pod) {
            let selector = Some(("labelSelector", PODS_OF_CDI));
            self.list_within(&mut memory, ResourceKind::PODS, selector).await
        } else {
            Ok(Vec::new())
        };
        // If the user has no access to pods, no rates and no failures are shown.
        let (pods, now) = (pods.unwrap_or_default(), Timestamp::now());
        let mut rows = Vec::new();
        for (target, found) in all {
            let mut row = status_row(target, &found, &warnings, &pods, now);
            row.namespace =
                found.namespace().filter(|_| self.namespace().is_empty()).map(printable_line);
            if self.waits_for_consumer(&found).await {
                row.progress.sentence =
                    Some(WaitReason::FirstConsumer(row.target.clone()).to_string());
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Lists all DataVolumes with their claims, and all other claims that are filled by CDI.
    async fn list_all(
        &self,
        memory: &mut MemoryGrant,
    ) -> Result<Vec<(VolumeTarget, TargetObjects)>, PluginError> {
        let volumes = self.list_within(memory, ResourceKind::DATA_VOLUMES, None).await?;
        let claims = self.list_within(memory, ResourceKind::CLAIMS, None).await?;
        let key = |object: &Value| {
            let at = |pointer| text_at(object, pointer).unwrap_or_default().to_owned();
            (at("/metadata/namespace"), at("/metadata/name"))
        };
        let mut claims: HashMap<_, _> =
            claims.into_iter().map(|claim| (key(&claim), claim)).collect();
        let mut all = Vec::new();
        for volume in volumes {
            let key = key(&volume);
            let claim = claims.remove(&key).unwrap_or_default();
            let found = TargetObjects { data_volume: volume, claim };
            all.extend(
                VolumeTarget::new(VolumeTargetKind::DataVolume, &key.1)
                    .map(|target| (target, found)),
            );
        }
        for ((_, name), claim) in claims {
            let found = TargetObjects { claim, ..TargetObjects::default() };
            let is_filled_by_cdi =
                ["storage.upload.target", "storage.import.endpoint", "storage.pod.phase"];
            // Populators' temporary claims are not shown, because they belong to the claims that
            // they fill.
            if !name.starts_with("prime-")
                && is_filled_by_cdi.iter().any(|name| found.of_claim(name).is_some())
            {
                all.extend(
                    VolumeTarget::new(VolumeTargetKind::Claim, &name).map(|target| (target, found)),
                );
            }
        }
        all.sort_by_cached_key(|(target, found)| {
            (found.namespace().unwrap_or_default().to_owned(), target.to_string())
        });
        Ok(all)
    }

    /// Lists the events that match a field selector, newest first. The list is empty if the user
    /// may not read events.
    pub(crate) async fn list_events(&self, selector: &str) -> Vec<ClusterEvent> {
        let events =
            self.list_objects(ResourceKind::EVENTS, Some(("fieldSelector", selector))).await;
        let mut events: Vec<_> =
            events.unwrap_or_default().iter().filter_map(ClusterEvent::from_object).collect();
        // The times are in RFC 3339 format and in UTC, so their text order is the order in time.
        events.sort_by(|one, other| other.time.cmp(&one.time));
        events
    }
}

fn status_row(
    target: VolumeTarget,
    found: &TargetObjects,
    warnings: &[ClusterEvent],
    pods: &[Value],
    now: Timestamp,
) -> StatusRow {
    let prime = found.prime_claim().map(str::to_owned);
    let mut names = vec![target.name().to_owned()];
    for claim in prime.iter().map(String::as_str).chain([target.name()]) {
        names.push(format!("cdi-upload-{claim}"));
        names.push(format!("importer-{claim}"));
    }
    names.push(pods::pod_name(&found.claim, found.is_upload()));
    names.extend(prime);
    let is_named = |name: &str| names.iter().any(|known| known == name);
    // The namespaces are compared, because an object in another namespace may have the same name.
    let is_beside = |namespace: &str| found.namespace().is_none_or(|own| own == namespace);
    let events =
        warnings.iter().filter(|event| is_named(&event.name) && is_beside(&event.namespace));
    let pods = pods.iter().filter(|pod| {
        let at = |pointer| text_at(pod, pointer).unwrap_or_default();
        is_named(at("/metadata/name")) && is_beside(at("/metadata/namespace"))
    });
    let pace = pods
        .clone()
        .find_map(|pod| FillPace::measure(found, pod, now))
        .or_else(|| FillPace::measure(found, &Value::Null, now));
    StatusRow {
        namespace: None,
        source: found.source_name(),
        age: found.created().and_then(|created| seconds_between(created, now)),
        rate: pace.and_then(|pace| pace.rate),
        seconds_left: pace.and_then(|pace| pace.seconds_left),
        failure: pods.clone().find_map(FailedAttempt::of_pod).filter(|_| !found.is_filled()),
        events: events.take(MOST_EVENTS).cloned().collect(),
        progress: ImportProgress::from_objects(found),
        bytes: found.claim_bytes().or_else(|| found.disk_bytes()),
        target,
    }
}

/// Columns of the table. The first one is shown only for rows from several namespaces.
const COLUMNS: [&str; 10] =
    ["NAMESPACE", "NAME", "PHASE", "PROGRESS", "RATE", "LEFT", "RESTARTS", "SIZE", "SOURCE", "AGE"];

/// Formats the table, with messages below each row. No line contains characters that control the
/// terminal.
pub fn format_table(rows: &[StatusRow]) -> String {
    let first = usize::from(rows.iter().all(|row| row.namespace.is_none()));
    let lines = std::iter::once(COLUMNS.map(str::to_owned)).chain(rows.iter().map(row_cells));
    let lines: Vec<Vec<String>> =
        lines.map(|line| line.into_iter().skip(first).collect()).collect();
    let mut screen = String::new();
    // The first line is the header, which has no messages.
    let said = std::iter::once(Vec::new()).chain(rows.iter().map(row_messages));
    for (line, said) in align_columns(&lines).into_iter().zip(said) {
        screen.push_str(&line);
        screen.push('\n');
        for line in said {
            screen.push_str(&format!("  {line}\n"));
        }
    }
    screen
}

/// Joins the cells of each line, padded so that the columns are aligned.
pub(crate) fn align_columns(lines: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let join = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(join).collect()
}

fn row_cells(row: &StatusRow) -> [String; COLUMNS.len()] {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        known(row.namespace.clone()),
        row.target.to_string(),
        row.progress.phase.clone(),
        known(row.progress.percent.map(|percent| format!("{percent:.2} %"))),
        known(row.rate.map(|rate| format!("{}/s", BinaryBytes(rate)))),
        known(row.seconds_left.map(short_duration)),
        row.progress.restarts.to_string(),
        known(row.bytes.map(|bytes| BinaryBytes(bytes).to_string())),
        known(row.source.clone()),
        known(row.age.map(short_duration)),
    ]
}

/// Formats a duration in the largest unit that gives at least two, as kubectl does for ages.
fn short_duration(seconds: u64) -> String {
    let units = [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60)];
    match units.into_iter().find(|(_, unit)| seconds >= 2 * unit) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

impl StatusRow {
    /// Returns the row as JSON, as documented in `docs/use/kubectl-cdi.md`. `namespace` is used if
    /// the row does not contain a namespace.
    pub fn to_json(&self, namespace: &str) -> Value {
        let warnings = self.events.iter().map(|event| {
            let ClusterEvent { time, object, reason, message, .. } = event;
            json!({"time": time, "object": object, "reason": reason, "message": message})
        });
        json!({
            "namespace": self.namespace.as_deref().unwrap_or(namespace),
            "target": self.target.to_string(),
            "phase": self.progress.phase,
            "percent": self.progress.percent,
            "bytes": self.bytes,
            "source": self.source,
            "bytes_per_second": self.rate,
            "seconds_left": self.seconds_left,
            "age_seconds": self.age,
            "restarts": self.progress.restarts,
            "message": self.progress.sentence,
            "last_failure": self.failure.as_ref().map(|failure| json!({
                "reason": failure.reason,
                "exit_code": failure.exit_code,
                "message": failure.message,
                "advice": self.failure_advice(failure),
            })),
            "warnings": warnings.collect::<Vec<_>>(),
        })
    }

    /// Returns what the user can do about a failed attempt.
    fn failure_advice(&self, failure: &FailedAttempt) -> String {
        let target = &self.target;
        if failure.is_out_of_memory() {
            return "raise the memory limit of CDI's pods: podResourceRequirements in spec.config of the CDI object".to_owned();
        }
        match failure.message.as_deref().and_then(|message| final_reason(message, 1)) {
            Some(ExitReason::NoSpace) => {
                format!("delete {target} and import again with a larger size")
            }
            Some(_) => format!("correct the source, delete {target} and import again"),
            None => "CDI tries again; each attempt starts over".to_owned(),
        }
    }

    /// Returns true if the target, the progress and the warnings are the same as in `earlier`.
    /// Ages and rates are not compared, because they change constantly.
    pub fn has_state_of(&self, earlier: &Self) -> bool {
        self.target == earlier.target
            && self.namespace == earlier.namespace
            && self.progress == earlier.progress
            && self.failure == earlier.failure
            && self.events == earlier.events
    }
}

fn row_messages(row: &StatusRow) -> Vec<String> {
    let events = row.events.iter().map(|event| {
        let ClusterEvent { time, object, reason, message, .. } = event;
        format!("{time} {object} {reason}: {message}")
    });
    let failure = row.failure.as_ref().map(|failure| {
        let advice = row.failure_advice(failure);
        // CDI copies the pod's message into the DataVolume.
        let is_said = failure.message.is_some() && failure.message == row.progress.sentence;
        let words = if is_said { String::new() } else { format!("{failure}; ") };
        format!("the last attempt failed ({}): {words}{advice}", failure.reason)
    });
    row.progress.sentence.iter().cloned().chain(failure).chain(events).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, time: &str, message: &str) -> ClusterEvent {
        let about = json!({"kind": "Pod", "name": name});
        let event = json!({"involvedObject": about, "reason": "Odd", "message": message, "lastTimestamp": time});
        ClusterEvent::from_object(&event).unwrap()
    }

    #[test]
    fn one_row_has_all_the_information() {
        let volume = json!({
            "metadata": {"creationTimestamp": "2025-12-31T23:58:00Z"},
            "spec": {"source": {"http": {}}},
            "status": {
                "phase": "ImportInProgress",
                "progress": "9.5%",
                "restartCount": 1,
                "conditions": [{"type": "Running", "message": "not\u{1b}[2J found"}],
            },
        });
        let claim = json!({
            "metadata": {"name": "a", "annotations": {"cdi.kubevirt.io/storage.populator.pvcPrime": "prime-1"}},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        });
        let found = TargetObjects { data_volume: volume, claim };
        let warnings =
            [event("importer-prime-1", "2026-01-01T00:00:00Z", "a\nb"), event("other", "", "no")];
        let pod = json!({
            "metadata": {"name": "importer-prime-1"},
            "status": {"containerStatuses": [
                {"name": "importer", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                 "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            ]},
        });
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let none = TargetObjects::default();
        let rows = [("dv/a", &found), ("pvc/longer", &none)].map(|(target, found)| {
            status_row(target.parse().unwrap(), found, &warnings, std::slice::from_ref(&pod), now)
        });
        assert_eq!(rows[0].bytes, Some(1 << 30));
        assert_eq!(
            format_table(&rows),
            "NAME        PHASE             PROGRESS  RATE        LEFT  RESTARTS  SIZE      SOURCE  AGE\n\
             dv/a        ImportInProgress  9.50 %    9.73 MiB/s  96s   1         1.00 GiB  http    2m\n  \
               not\\u{1b}[2J found\n  \
               the last attempt failed (OOMKilled): OOMKilled, exit code 137; raise the memory limit of CDI's pods: \
               podResourceRequirements in spec.config of the CDI object\n  \
               2026-01-01T00:00:00Z Pod/importer-prime-1 Odd: a b\n\
             pvc/longer  Pending           -         -           -     0         -         -       -\n"
        );
        let json = rows[0].to_json("vms");
        assert_eq!((&json["namespace"], &json["target"]), (&json!("vms"), &json!("dv/a")));
        assert_eq!((&json["seconds_left"], &json["age_seconds"]), (&json!(96), &json!(130)));
        assert_eq!(json["warnings"][0]["message"], "a b");
        let mut row = rows[0].clone();
        row.age = None;
        assert!(row.has_state_of(&rows[0]) && !rows[1].has_state_of(&rows[0]));
        row.namespace = Some("vms".to_owned());
        assert!(format_table(&[row]).starts_with("NAMESPACE  NAME  PHASE "));
    }

    #[test]
    fn durations_are_shortened() {
        for (seconds, text) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (90_000, "25h"), (200_000, "2d")]
        {
            assert_eq!(short_duration(seconds), text);
        }
    }

    #[test]
    fn only_the_newest_five_warnings_are_kept() {
        let warnings: Vec<_> = (0..9).map(|n| event("disk", &n.to_string(), "x")).collect();
        let row = status_row(
            "dv/disk".parse().unwrap(),
            &TargetObjects::default(),
            &warnings,
            &[],
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(row.events, warnings[..5]);
        assert!(ClusterEvent::from_object(&json!({"involvedObject": {"name": "disk"}})).is_none());
    }
}
