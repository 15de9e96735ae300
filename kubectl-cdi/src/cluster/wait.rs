//! Waits for CDI's controllers, and determines what they are waiting for.

use std::fmt::Display;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Cluster;
use super::destination::VolumeTarget;
use super::error::filled_volume;
use super::look::TargetObjects;
use super::object::{cdi_annotation, text_at};
use super::pods;
use super::resource::ResourceKind;
use super::status::ClusterEvent;
use super::uid::ObjectUid;
use super::waiting::WaitReason;
use crate::error::PluginError;

/// Interval at which the cluster is queried, with about five requests each time. It is half of
/// virtctl's interval.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The state in which a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitGoal {
    /// The upload server is ready for data.
    Ready,
    /// The volume is filled.
    Filled,
}

impl Cluster {
    /// Waits until `goal` is reached, for at most `time_limit`. Calls `told` with each new reason
    /// for waiting.
    pub async fn wait_for_goal(
        &self,
        target: &VolumeTarget,
        goal: WaitGoal,
        time_limit: Duration,
        mut told: impl FnMut(&WaitReason),
    ) -> Result<TargetObjects, PluginError> {
        let started = Instant::now();
        let mut last = None;
        loop {
            let waiting = match self.find_target(target).await {
                Ok(found) if check_goal(&found, target, goal)? => return Ok(found),
                Ok(found) => {
                    let waiting = self.wait_reason(target, &found).await;
                    waiting.check_class(target)?;
                    match goal {
                        WaitGoal::Ready => waiting,
                        WaitGoal::Filled => waiting.after_transfer(),
                    }
                }
                Err(error) if error.may_pass() => WaitReason::Cluster(error.to_string()),
                Err(error) => return Err(error),
            };
            if last.as_ref() != Some(&waiting) {
                told(&waiting);
            }
            if started.elapsed() >= time_limit {
                return Err(timed_out(target, time_limit, &waiting));
            }
            last = Some(waiting);
            sleep(INTERVAL.min(time_limit.saturating_sub(started.elapsed()))).await;
        }
    }

    /// Determines what CDI is waiting for. Objects that the user may not read are skipped; the
    /// answer is then less detailed.
    pub(crate) async fn wait_reason(
        &self,
        target: &VolumeTarget,
        found: &TargetObjects,
    ) -> WaitReason {
        if self.waits_for_consumer(found).await {
            return WaitReason::FirstConsumer(target.clone());
        }
        let claim = &found.claim;
        if claim.is_null() {
            return WaitReason::Claim;
        }
        let filled = &self.filled_claim(found).await;
        if text_at(filled, "/status/phase") != Some("Bound") {
            return WaitReason::Unbound(self.complaint_about(filled).await);
        }
        let name = pods::pod_name(filled, found.is_upload());
        let Some(pod) = self.get_object(ResourceKind::PODS, &name).await.ok().flatten() else {
            return WaitReason::Pod;
        };
        match pods::wait_reason(&pod) {
            WaitReason::Starting(None) => WaitReason::Starting(self.complaint_about(&pod).await),
            waiting => waiting,
        }
    }

    /// Returns the claim that is filled: the temporary one of a populator, or the target's own.
    pub(super) async fn filled_claim(&self, found: &TargetObjects) -> Value {
        let prime = match found.prime_claim() {
            Some(prime) => self.get_object(ResourceKind::CLAIMS, prime).await.ok().flatten(),
            None => None,
        };
        prime.unwrap_or_else(|| found.claim.clone())
    }

    /// Returns true if CDI waits until a pod uses the claim.
    pub(crate) async fn waits_for_consumer(&self, found: &TargetObjects) -> bool {
        match found.phase() {
            // CDI reports the first phase for a class with a CSI driver, and the second for a
            // class without one.
            Some("PendingPopulation" | "WaitForFirstConsumer") => return true,
            // CDI may be configured to bind claims with its own pods. The phase shows this, but
            // events do not.
            Some(_) => return false,
            None => {}
        }
        let claim = &found.claim;
        let is_chosen =
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
        let is_forced = cdi_annotation(claim, "storage.bind.immediate.requested").is_some();
        if is_chosen || is_forced || text_at(claim, "/status/phase") == Some("Bound") {
            return false;
        }
        // The binding mode of the storage class would show this too, but users with access to one
        // namespace may not read storage classes.
        let events = self.events_about(claim).await;
        events.first().is_some_and(|event| event.reason == "WaitForFirstConsumer")
    }

    /// Returns the newest warning about a claim, or about a pod that is assigned to a node.
    async fn complaint_about(&self, object: &Value) -> Option<String> {
        let events = self.events_about(object).await.into_iter();
        // A warning from the scheduler is outdated once the pod is assigned to a node.
        let mut valid =
            events.filter(|event| event.is_warning && event.reason != "FailedScheduling");
        valid.next().map(|event| event.message)
    }

    /// Lists the events of this object, newest first. They are matched by UID, because events
    /// outlive their objects and CDI creates other objects with the same name.
    async fn events_about(&self, object: &Value) -> Vec<ClusterEvent> {
        // The UID is validated, because it becomes part of a selector.
        match text_at(object, "/metadata/uid").and_then(ObjectUid::parse) {
            Some(uid) => self.list_events(&format!("involvedObject.uid={}", uid.as_str())).await,
            None => Vec::new(),
        }
    }
}

/// Creates the error for a wait that has reached its time limit.
pub(crate) fn timed_out(
    target: &VolumeTarget,
    time_limit: Duration,
    waiting: &dyn Display,
) -> PluginError {
    let seconds = time_limit.as_secs();
    let advice = format!("give a longer --timeout, or look at: kubectl cdi status {target}");
    PluginError::target(format!("{target} is not ready after {seconds} s: {waiting}; {advice}"))
}

/// Returns true if the goal is reached. Fails if it can no longer be reached.
pub(crate) fn check_goal(
    found: &TargetObjects,
    target: &VolumeTarget,
    goal: WaitGoal,
) -> Result<bool, PluginError> {
    // This is checked first, because some versions of CDI delete a DataVolume that has succeeded.
    match goal {
        WaitGoal::Ready if found.is_filled() => return Err(filled_volume(target)),
        WaitGoal::Filled if found.is_filled() => return Ok(true),
        _ => {}
    }
    found.check_not_deleted(target)?;
    match found.final_failure(target) {
        Some(failure) => Err(failure),
        None => Ok(goal == WaitGoal::Ready && found.is_ready()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_waiting_is_one_sentence() {
        let target: VolumeTarget = "dv/x".parse().unwrap();
        for (waiting, sentence) in [
            (
                WaitReason::FirstConsumer(target),
                "dv/x waits for its first consumer: start the VM, or give --force-bind",
            ),
            (WaitReason::Claim, "waiting for CDI to create the claim"),
            (WaitReason::Unbound(None), "waiting for a volume for the claim"),
            (
                WaitReason::Unscheduled("0/3 nodes".to_owned()),
                "waiting for a node for the pod: 0/3 nodes",
            ),
            (
                WaitReason::Crashing("exit code 1".to_owned()),
                "the pod has failed and is being retried: exit code 1",
            ),
            (WaitReason::Cluster("gone".to_owned()), "gone"),
        ] {
            assert_eq!(waiting.to_string(), sentence);
        }
    }
}
