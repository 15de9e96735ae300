//! Waiting for CDI's controllers, and what they themselves wait for.

use std::fmt::Display;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Cluster;
use super::destination::Target;
use super::error::ClusterError;
use super::look::Found;
use super::object::{annotation, text};
use super::pods;
use super::resource::Resource;
use super::status::Event;
use super::uid::ObjectUid;
use super::waiting::Waiting;

/// Time between two looks: half of virtctl's, and some five requests each.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Bytes can be sent.
    Ready,
    /// The content is there.
    Filled,
}

impl Cluster {
    /// Waits until bytes can be sent, for at most `patience`; `told` hears whatever is newly waited for.
    pub async fn wait_for_upload_ready(
        &self,
        target: &Target,
        patience: Duration,
        told: impl FnMut(&Waiting),
    ) -> Result<Found, ClusterError> {
        self.wait(target, Goal::Ready, patience, told).await
    }

    /// Waits, after the bytes were sent, until CDI says that the volume is filled.
    pub async fn wait_for_done(
        &self,
        target: &Target,
        patience: Duration,
        told: impl FnMut(&Waiting),
    ) -> Result<Found, ClusterError> {
        self.wait(target, Goal::Filled, patience, told).await
    }

    async fn wait(
        &self,
        target: &Target,
        goal: Goal,
        patience: Duration,
        mut told: impl FnMut(&Waiting),
    ) -> Result<Found, ClusterError> {
        let started = Instant::now();
        let mut last = None;
        loop {
            let waiting = match self.look(target).await {
                Ok(found) if reached(&found, target, goal)? => return Ok(found),
                Ok(found) => {
                    let waiting = self.reason(target, &found).await;
                    waiting.check_class(target)?;
                    match goal {
                        Goal::Ready => waiting,
                        Goal::Filled => waiting.after_transfer(),
                    }
                }
                Err(error) if error.may_pass() => Waiting::Cluster(error.to_string()),
                Err(error) => return Err(error),
            };
            if last.as_ref() != Some(&waiting) {
                told(&waiting);
            }
            if started.elapsed() >= patience {
                return Err(timed_out(target, patience, &waiting));
            }
            last = Some(waiting);
            sleep(INTERVAL.min(patience.saturating_sub(started.elapsed()))).await;
        }
    }

    /// What CDI waits for. Where one may not look, there is less detail.
    pub(crate) async fn reason(&self, target: &Target, found: &Found) -> Waiting {
        if self.waits_for_consumer(found).await {
            return Waiting::FirstConsumer(target.clone());
        }
        let Some(claim) = &found.claim else {
            return Waiting::Claim;
        };
        let prime = match found.prime() {
            Some(prime) => self.get(Resource::CLAIMS, prime).await.ok().flatten(),
            None => None,
        };
        let filled = prime.as_ref().unwrap_or(claim);
        if text(filled, "/status/phase") != Some("Bound") {
            return Waiting::Unbound(self.complaint_about(filled).await);
        }
        let name = pods::name(filled, found.is_upload());
        let Some(pod) = self.get(Resource::PODS, &name).await.ok().flatten() else {
            return Waiting::Pod;
        };
        match pods::judge(&pod) {
            Waiting::Starting(None) => Waiting::Starting(self.complaint_about(&pod).await),
            waiting => waiting,
        }
    }

    /// True if nothing happens before a pod uses the claim.
    pub(crate) async fn waits_for_consumer(&self, found: &Found) -> bool {
        match found.phase() {
            // What CDI reports for a class with a CSI driver and for one without.
            Some("PendingPopulation" | "WaitForFirstConsumer") => return true,
            // CDI may be told to bind claims by its own pods; events do not tell that.
            Some(_) => return false,
            None => {}
        }
        let Some(claim) = &found.claim else {
            return false;
        };
        let is_chosen = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
        let is_forced = annotation(claim, "storage.bind.immediate.requested").is_some();
        if is_chosen || is_forced || text(claim, "/status/phase") == Some("Bound") {
            return false;
        }
        // The binding mode of the class says the same, but users of one namespace may not read
        // classes.
        let events = self.events_about(claim).await;
        events
            .first()
            .is_some_and(|event| event.reason == "WaitForFirstConsumer")
    }

    /// The newest warning about a claim, or about a pod that has a node.
    async fn complaint_about(&self, object: &Value) -> Option<String> {
        let events = self.events_about(object).await.into_iter();
        // That of the scheduler was true until the pod got its node.
        let mut valid = events.filter(|event| event.is_warning && event.reason != "FailedScheduling");
        valid.next().map(|event| event.message)
    }

    /// The events of this very object, the newest first. Events outlive their objects, and CDI
    /// makes others of the same name.
    async fn events_about(&self, object: &Value) -> Vec<Event> {
        // Of plain letters: it becomes part of a selector.
        match text(object, "/metadata/uid").map(str::parse::<ObjectUid>) {
            Some(Ok(uid)) => self.events(&format!("involvedObject.uid={}", uid.as_str())).await,
            _ => Vec::new(),
        }
    }
}

/// The error of a wait that was too long.
pub(crate) fn timed_out(target: &Target, patience: Duration, waiting: &dyn Display) -> ClusterError {
    ClusterError::TimedOut {
        target: target.clone(),
        seconds: patience.as_secs(),
        waiting: waiting.to_string(),
    }
}

/// True at the end of a wait; fails where that will never come.
pub(crate) fn reached(found: &Found, target: &Target, goal: Goal) -> Result<bool, ClusterError> {
    // First, since some versions of CDI delete a DataVolume that has succeeded.
    match goal {
        Goal::Ready if found.is_filled() => return Err(ClusterError::Filled(target.clone())),
        Goal::Filled if found.is_filled() => return Ok(true),
        _ => {}
    }
    found.stays(target)?;
    match found.failure(target) {
        Some(failure) => Err(failure),
        None => Ok(goal == Goal::Ready && found.is_ready()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_one_sentence() {
        let target: Target = "dv/x".parse().unwrap();
        for (waiting, sentence) in [
            (
                Waiting::FirstConsumer(target),
                "dv/x waits for its first consumer: start the VM, or give --force-bind",
            ),
            (Waiting::Claim, "waiting for CDI to make the claim"),
            (Waiting::Unbound(None), "waiting for a volume for the claim"),
            (
                Waiting::Unscheduled("0/3 nodes".to_owned()),
                "waiting for a node for the pod: 0/3 nodes",
            ),
            (
                Waiting::Crashing("exit code 1".to_owned()),
                "the pod has failed and is tried again: exit code 1",
            ),
            (Waiting::Cluster("gone".to_owned()), "gone"),
        ] {
            assert_eq!(waiting.to_string(), sentence);
        }
    }
}
