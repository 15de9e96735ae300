//! The pod that fills a claim: its name, and what it is waiting for.

use std::fmt;

use program::names::is_subdomain;
use serde_json::Value;

use super::object::{
    cdi_annotation, find_condition, list_at, printable_line, printable_text, text_at,
};
use super::waiting::WaitReason;

/// Returns the name of the pod that fills a claim. If CDI's annotation is missing, the name is
/// built in the same way as in CDI.
pub(crate) fn pod_name(claim: &Value, is_upload: bool) -> String {
    let (said, prefix) = if is_upload {
        ("storage.uploadPodName", "cdi-upload")
    } else {
        ("storage.import.importPodName", "importer")
    };
    // The name is validated, because it becomes part of a request path.
    if let Some(name) = cdi_annotation(claim, said).filter(|name| is_subdomain(name)) {
        return name.to_owned();
    }
    format!("{prefix}-{}", text_at(claim, "/metadata/name").unwrap_or_default())
}

/// Determines from the status of a pod what it is waiting for.
pub(crate) fn wait_reason(pod: &Value) -> WaitReason {
    let scheduled = find_condition(pod, "PodScheduled");
    if let Some(why) = scheduled.filter(|condition| condition["status"] == "False") {
        return WaitReason::Unscheduled(printable_line(
            text_at(why, "/message").unwrap_or("unschedulable"),
        ));
    }
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses: Vec<&Value> = statuses.iter().flat_map(|kind| list_at(pod, kind)).collect();
    for status in &statuses {
        let message = || printable_text(text_at(status, "/state/waiting/message"));
        match text_at(status, "/state/waiting/reason") {
            None | Some("ContainerCreating" | "PodInitializing") => {}
            Some("CrashLoopBackOff") => return WaitReason::Crashing(last_words(status)),
            // The kubelet reports many such reasons: ErrImagePull, ImagePullBackOff,
            // InvalidImageName, …
            Some(reason) if reason.contains("Image") => {
                return WaitReason::Image(message().unwrap_or_else(|| printable_line(reason)));
            }
            Some(reason) => {
                return WaitReason::Starting(Some(
                    message().unwrap_or_else(|| printable_line(reason)),
                ));
            }
        }
    }
    let mut ends = statuses.iter().filter_map(|status| status.pointer("/state/terminated"));
    if let Some(end) = ends.find(|end| end["exitCode"] != 0) {
        return WaitReason::Crashing(FailedAttempt::from_end(end).to_string());
    }
    // Init containers are ignored, because they end before the other containers start.
    let has_ended = |status: &Value| status.pointer("/state/terminated").is_some();
    if list_at(pod, "/status/containerStatuses").iter().any(has_ended) {
        return WaitReason::Finishing;
    }
    let is_running = |status: &&&Value| status.pointer("/state/running").is_some();
    if statuses.is_empty() || statuses.iter().filter(is_running).count() == 0 {
        return WaitReason::Starting(None);
    }
    match statuses.iter().find(|status| status["ready"] == false) {
        Some(status) if status.pointer("/lastState/terminated").is_some() => {
            WaitReason::Crashing(last_words(status))
        }
        Some(_) => WaitReason::NotReady,
        None => WaitReason::Finishing,
    }
}

/// Returns the last message of a container that has ended.
fn last_words(status: &Value) -> String {
    let end = status.pointer("/lastState/terminated");
    end.map_or_else(|| "it says nothing".to_owned(), |end| FailedAttempt::from_end(end).to_string())
}

/// The end of a container that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The reason in one word, such as `OOMKilled` or `Error`.
    pub reason: String,
    /// The exit code; `null` if the kubelet does not report one.
    pub exit_code: Value,
    /// The termination message.
    pub message: Option<String>,
}

impl FailedAttempt {
    pub(super) fn from_end(end: &Value) -> Self {
        Self {
            reason: printable_line(text_at(end, "/reason").unwrap_or("Error")),
            exit_code: end["exitCode"].clone(),
            message: printable_text(text_at(end, "/message")),
        }
    }

    /// Reads the last failure of a pod that is restarted after failures.
    pub(crate) fn of_pod(pod: &Value) -> Option<Self> {
        let states = ["/state/terminated", "/lastState/terminated"];
        let statuses = list_at(pod, "/status/containerStatuses").iter();
        let mut ends =
            statuses.flat_map(|status| states.iter().filter_map(|state| status.pointer(state)));
        ends.find(|end| end["exitCode"] != 0).map(Self::from_end)
    }

    /// True if the kernel killed the program because the pod had used up its memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.reason == "OOMKilled"
    }
}

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => f.write_str(message),
            None => write!(f, "{}, exit code {}", self.reason, self.exit_code),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pod_name_is_taken_from_the_annotation() {
        let claim =
            |annotations: Value| json!({"metadata": {"name": "disk", "annotations": annotations}});
        assert_eq!(pod_name(&claim(json!({})), true), "cdi-upload-disk");
        assert_eq!(pod_name(&claim(json!({})), false), "importer-disk");
        let said = json!({"cdi.kubevirt.io/storage.uploadPodName": "cdi-upload-8100677d"});
        assert_eq!(pod_name(&claim(said), true), "cdi-upload-8100677d");
        let odd = json!({"cdi.kubevirt.io/storage.uploadPodName": "../../secrets"});
        assert_eq!(pod_name(&claim(odd), true), "cdi-upload-disk");
    }

    fn container(status: &Value) -> WaitReason {
        wait_reason(&json!({"status": {"containerStatuses": [status]}}))
    }

    fn waiting(reason: &str, message: &str) -> WaitReason {
        container(
            &json!({"ready": false, "state": {"waiting": {"reason": reason, "message": message}}}),
        )
    }

    #[test]
    fn the_reason_for_waiting_is_read_from_the_pod_status() {
        let unschedulable = json!({"status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"},
        ]}});
        assert_eq!(
            wait_reason(&unschedulable),
            WaitReason::Unscheduled("0/3 nodes are available".to_owned())
        );
        assert_eq!(
            wait_reason(&json!({"status": {"phase": "Pending"}})),
            WaitReason::Starting(None)
        );
        assert_eq!(waiting("ContainerCreating", ""), WaitReason::Starting(None));
        assert_eq!(
            waiting("ImagePullBackOff", "Back-off pulling \"x\""),
            WaitReason::Image("Back-off pulling \"x\"".to_owned())
        );
        assert_eq!(waiting("ErrImagePull", ""), WaitReason::Image("ErrImagePull".to_owned()));
        assert_eq!(
            waiting("CreateContainerConfigError", "secret \"s\" not found"),
            WaitReason::Starting(Some("secret \"s\" not found".to_owned()))
        );
        let running = json!({"running": {}});
        assert_eq!(container(&json!({"ready": false, "state": running})), WaitReason::NotReady);
        let ended = json!({"terminated": {"exitCode": 0}});
        for (ready, state) in [(true, running), (false, ended)] {
            assert_eq!(container(&json!({"ready": ready, "state": state})), WaitReason::Finishing);
        }
    }

    #[test]
    fn a_failing_pod_is_reported_with_its_last_message() {
        let end = |message: &str| json!({"terminated": {"exitCode": 1, "reason": "Error", "message": message}});
        let crash = |last: &Value| {
            container(
                &json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}),
            )
        };
        assert_eq!(crash(&end("no space")), WaitReason::Crashing("no space".to_owned()));
        assert_eq!(crash(&end("")), WaitReason::Crashing("Error, exit code 1".to_owned()));
        let ended = json!({"ready": false, "state": end("no space")});
        assert_eq!(container(&ended), WaitReason::Crashing("no space".to_owned()));
        let again = json!({"ready": false, "state": {"running": {}}, "lastState": end("no space")});
        assert_eq!(container(&again), WaitReason::Crashing("no space".to_owned()));
    }
}
