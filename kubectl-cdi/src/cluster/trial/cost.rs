//! The cost of an import: time, restarts, scratch space, CPU time and memory, from the pods that
//! ran it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use program::quantity::parse_bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::super::Cluster;
use super::super::destination::VolumeTarget;
use super::super::object::{list_at, printable_line, text_at};
use super::super::pods::{self, FailedAttempt};
use super::super::reader::{ReaderState, reader_state};
use super::super::resource::ResourceKind;
use super::manifest::{CONTAINER, scratch_claim};
use crate::error::PluginError;

/// The part of a termination message that asks for scratch space.
const NEEDS_SCRATCH: &str = "\"scratchSpaceRequired\":true";

/// The sources of CPU time and memory, and the place in a pod of the object that has them. The
/// first one that the user may read is used.
const METERS: [(ResourceKind, &str); 2] = [
    (ResourceKind::POD_METRICS, "/metadata/name"),
    (ResourceKind::NODE_SUMMARIES, "/spec/nodeName"),
];

/// The cost of an import, as printed with `--output json`. Unknown values are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ImportCost {
    /// The image of the pod.
    pub image: String,
    /// Time from the first start of the program to its last end. Kubernetes counts seconds.
    pub seconds: Option<i64>,
    /// Number of restarts of the program.
    pub restarts: u64,
    /// True if the program was killed because it used too much memory.
    pub killed_for_memory: bool,
    /// Size of the scratch space, as a Kubernetes quantity.
    pub scratch: Option<String>,
    /// CPU time in seconds.
    pub cpu_seconds: Option<f64>,
    /// The largest measured memory.
    pub memory_bytes: Option<u64>,
    /// The reason for the failure, as the pod states it.
    pub error: Option<String>,
}

/// An import, as observed until now.
#[derive(Default)]
pub(super) struct ObservedImport {
    pub(super) cost: ImportCost,
    /// The newest pod that runs the import.
    pub(super) pod: Value,
    /// True if the last program that has ended asks for scratch space (contract §5.3).
    pub(super) needs_scratch: bool,
    /// The last message of a program that has failed.
    last_words: Option<String>,
    started: Option<Timestamp>,
    /// Number of restarts of earlier pods.
    earlier_restarts: u64,
    /// Number of [`METERS`] that cannot be read.
    useless_meters: usize,
    measured: Option<Instant>,
}

impl ObservedImport {
    /// Reads the pod that fills the claim of `target`. A failed request is left out, because the
    /// next one follows soon.
    pub(super) async fn look_at_target(&mut self, cluster: &Cluster, target: &VolumeTarget) {
        // The claim that a populator fills disappears at the end, but its pod is kept.
        let name = match text_at(&self.pod, "/metadata/name") {
            Some(name) => name.to_owned(),
            None => match cluster.find_target(target).await {
                Ok(found) => pods::pod_name(&cluster.filled_claim(&found).await, false),
                Err(_) => return,
            },
        };
        self.look_at_pod(cluster, &name).await.ok();
    }

    /// Reads a pod, and what it uses.
    pub(super) async fn look_at_pod(
        &mut self,
        cluster: &Cluster,
        name: &str,
    ) -> Result<ReaderState, PluginError> {
        let Some(pod) = cluster.get_object(ResourceKind::PODS, name).await? else {
            return Ok(ReaderState::Gone);
        };
        let state = reader_state(&pod);
        self.observe(pod);
        self.measure(cluster).await?;
        Ok(state)
    }

    /// Takes over the current state of the pod. CDI replaces a pod that needs scratch space.
    fn observe(&mut self, pod: Value) {
        if pod["metadata"]["uid"] != self.pod["metadata"]["uid"] {
            self.earlier_restarts = self.cost.restarts;
        }
        let image = text_at(of_importer(&pod, "/spec/containers"), "/image");
        self.cost.image = printable_line(image.unwrap_or_default());
        let status = of_importer(&pod, "/status/containerStatuses");
        let restarts = status["restartCount"].as_u64().unwrap_or(0);
        self.cost.restarts = self.earlier_restarts.saturating_add(restarts);
        for state in ["/lastState/terminated", "/state/terminated", "/state/running"] {
            let Some(state) = status.pointer(state) else { continue };
            let time = |field: &str| state[field].as_str()?.parse::<Timestamp>().ok();
            self.started = self.started.into_iter().chain(time("startedAt")).min();
            if let (Some(started), Some(ended)) = (self.started, time("finishedAt")) {
                self.cost.seconds = Some(ended.as_second().saturating_sub(started.as_second()));
            }
            let message = text_at(state, "/message").unwrap_or_default();
            self.needs_scratch = message.contains(NEEDS_SCRATCH);
            if state["exitCode"].as_i64().is_some_and(|code| code != 0) {
                let failure = FailedAttempt::from_end(state);
                self.cost.killed_for_memory |= failure.is_out_of_memory();
                self.last_words = Some(failure.to_string());
            }
        }
        self.pod = pod;
    }

    /// Records that the import has failed, with the pod's own words, or with `sentence` if there
    /// are none.
    pub(super) fn fail(&mut self, sentence: String) {
        self.cost.error = Some(self.last_words.clone().unwrap_or(sentence));
    }

    /// Reads the size of the scratch space and the current usage.
    async fn measure(&mut self, cluster: &Cluster) -> Result<(), PluginError> {
        if let Some(name) = scratch_claim(&self.pod).filter(|_| self.cost.scratch.is_none()) {
            let claim = cluster.get_object(ResourceKind::CLAIMS, name).await?.unwrap_or_default();
            let size = text_at(&claim, "/spec/resources/requests/storage");
            self.cost.scratch = size.map(printable_line);
        }
        let Some((meter, place)) = METERS.get(self.useless_meters) else { return Ok(()) };
        let Some(name) = text_at(&self.pod, place) else { return Ok(()) };
        match cluster.get_object(*meter, name).await {
            Ok(usage) => self.note_usage(&usage.unwrap_or_default()),
            Err(error) if error.may_pass() => {}
            Err(_) => self.useless_meters += 1,
        }
        Ok(())
    }

    /// Adds a response of the meter. A kubelet states the CPU time so far. A metrics server
    /// states the cores that were used, on average, during up to a minute: they count for the time
    /// since the last response, so short imports are measured roughly.
    fn note_usage(&mut self, response: &Value) {
        let earlier = self.cost.cpu_seconds;
        let passed =
            self.measured.replace(Instant::now()).map_or(Duration::ZERO, |last| last.elapsed());
        let mut pods = list_at(response, "/pods").iter();
        let of_kubelet = pods.find(|pod| pod["podRef"]["uid"] == self.pod["metadata"]["uid"]);
        let container = of_importer(of_kubelet.unwrap_or(response), "/containers");
        let cores = text_at(container, "/usage/cpu").and_then(parse_cores);
        let seconds =
            container["cpu"]["usageCoreNanoSeconds"].as_u64().map(|nanos| nanos as f64 / 1e9);
        let averaged = cores.map(|cores| earlier.unwrap_or(0.0) + cores * passed.as_secs_f64());
        // The time of a kubelet begins again with each start of the program.
        let longest = seconds.map(|seconds| seconds.max(earlier.unwrap_or(0.0)));
        self.cost.cpu_seconds = longest.or(averaged).or(earlier);
        let memory = text_at(container, "/usage/memory").and_then(|text| parse_bytes(text).ok());
        let memory = container["memory"]["workingSetBytes"].as_u64().or(memory);
        self.cost.memory_bytes = self.cost.memory_bytes.max(memory);
    }
}

/// Returns the entry about the importer in the list at this JSON pointer, or `null`.
fn of_importer<'a>(object: &'a Value, list: &str) -> &'a Value {
    let mut entries = list_at(object, list).iter();
    entries.find(|entry| entry["name"] == CONTAINER).unwrap_or(&Value::Null)
}

/// Parses a number of CPU cores, such as `250m` or `1234567n`.
fn parse_cores(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(['n', 'u', 'm']);
    let scale = match text.strip_prefix(number)? {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        _ => return None,
    };
    number.parse::<f64>().ok().filter(|cores| cores.is_finite()).map(|cores| cores * scale)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::cluster::imports::{IMPORTER_IMAGE, importer_pod};

    use super::*;

    #[test]
    fn the_cost_is_read_from_all_pods_of_an_import() {
        let pod = |uid: &str, restarts: u64, state: Value, last: Value| {
            let mut pod = importer_pod("try-1", "https://h/d");
            pod["metadata"]["uid"] = json!(uid);
            pod["status"]["containerStatuses"] = json!([
                {"name": "importer", "restartCount": restarts, "state": state, "lastState": last},
            ]);
            pod
        };
        let end = |from: &str, to: &str, code: u64, reason: &str| {
            json!({"terminated": {"startedAt": format!("2026-01-01T00:{from}Z"), "finishedAt": format!("2026-01-01T00:{to}Z"),
                   "exitCode": code, "reason": reason}})
        };
        let mut import = ObservedImport::default();
        import.observe(importer_pod("try-1", "https://h/d"));
        assert_eq!(import.cost.seconds, None);
        // The first pod asks for scratch space; the second one is killed once.
        let mut asking = end("00:10", "00:12", 0, "Completed");
        asking["terminated"]["message"] = json!(r#"{"scratchSpaceRequired":true}"#);
        import.observe(pod("a", 0, asking, json!({})));
        assert!(import.needs_scratch);
        let running = json!({"running": {"startedAt": "2026-01-01T00:01:00Z"}});
        import.observe(pod("b", 1, running, end("00:20", "00:50", 137, "OOMKilled")));
        import.observe(pod(
            "b",
            1,
            end("01:00", "01:40", 0, "Completed"),
            end("00:20", "00:50", 137, "OOMKilled"),
        ));
        import.note_usage(&json!({"pods": [
            {"podRef": {"uid": "a"}, "containers": []},
            {"podRef": {"uid": "b"}, "containers": [
                {"name": "istio-proxy", "memory": {"workingSetBytes": 1 << 30}},
                {"name": "importer", "cpu": {"usageCoreNanoSeconds": 2_500_000_000_u64}, "memory": {"workingSetBytes": 5 << 20}},
            ]},
        ]}));
        import.note_usage(
            &json!({"containers": [{"name": "importer", "usage": {"cpu": "0", "memory": "3Mi"}}]}),
        );
        assert!(!import.needs_scratch);
        import.fail("no words".to_owned());
        let expected = ImportCost {
            image: IMPORTER_IMAGE.to_owned(),
            seconds: Some(90),
            restarts: 1,
            killed_for_memory: true,
            scratch: None,
            cpu_seconds: Some(2.5),
            memory_bytes: Some(5 << 20),
            error: Some("OOMKilled, exit code 137".to_owned()),
        };
        assert_eq!(import.cost, expected);
    }

    #[test]
    fn the_cpu_usage_has_the_units_of_kubernetes() {
        for (text, cores) in [
            ("2", Some(2.0)),
            ("250m", Some(0.25)),
            ("500000000n", Some(0.5)),
            ("1k", None),
            ("", None),
        ] {
            assert_eq!(parse_cores(text), cores, "{text}");
        }
    }
}
