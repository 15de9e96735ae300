//! Waiting until CDI uses new images: the operator restarts, and then updates its Deployments.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::change::ImagesChange;
use super::operator::{CdiOperator, OPERATOR};
use super::record::{container_field, variable_value};
use super::{WORKER_PARTS, WorkerPart};
use crate::cluster::pods;
use crate::cluster::resource::ResourceKind;
use crate::cluster::wait::INTERVAL;
use crate::cluster::waiting::WaitReason;
use crate::error::PluginError;

/// The Deployments that use the images: CDI's controllers, and the upload proxy.
const WORKERS: [&str; 2] = ["cdi-deployment", "cdi-uploadproxy"];

impl CdiOperator {
    /// Waits until CDI uses the images of a change, for at most `time_limit`. Calls `told` with
    /// each new reason for waiting.
    pub async fn wait_for_rollout(
        &self,
        change: &ImagesChange,
        time_limit: Duration,
        mut told: impl FnMut(&str),
    ) -> Result<(), PluginError> {
        let (started, mut last) = (Instant::now(), None);
        loop {
            let reason = match self.rollout_reason(change).await {
                Ok(None) => return Ok(()),
                Ok(Some(reason)) => reason,
                Err(error) if error.may_pass() => error.to_string(),
                Err(error) => return Err(error),
            };
            if last.as_ref() != Some(&reason) {
                told(&reason);
            }
            if started.elapsed() >= time_limit {
                let seconds = time_limit.as_secs();
                return Err(PluginError::target(format!(
                    "CDI does not use the images after {seconds} s: {reason}; give a longer --timeout, look at `kubectl cdi images`, or \
                     run `kubectl cdi images restore`"
                )));
            }
            last = Some(reason);
            sleep(INTERVAL.min(time_limit.saturating_sub(started.elapsed()))).await;
        }
    }

    /// Reads the Deployments that use the images; null if CDI has only an operator.
    pub(super) async fn workers(&self) -> Result<[Value; 2], PluginError> {
        let [controllers, proxy] =
            WORKERS.map(|name| self.cluster.get_object(ResourceKind::DEPLOYMENTS, name));
        let (controllers, proxy) = tokio::try_join!(controllers, proxy)?;
        Ok([controllers.unwrap_or_default(), proxy.unwrap_or_default()])
    }

    /// Returns the reason to wait, or `None` at the end.
    async fn rollout_reason(&self, change: &ImagesChange) -> Result<Option<String>, PluginError> {
        let operator = self.cluster.get_object(ResourceKind::DEPLOYMENTS, OPERATOR).await?;
        let operator = operator.unwrap_or_default();
        let env = container_field(&operator, "env");
        let mut expected = change.expected.iter();
        if expected.any(|(name, image, is)| (variable_value(env, name) == Some(image)) != *is) {
            let holder = &change.holder;
            return Ok(Some(format!("waiting for deployment/{OPERATOR} to follow {holder}")));
        }
        if !is_rolled_out(&operator) {
            return Ok(Some(self.pod_reason(OPERATOR, &operator).await));
        }
        let workers = self.workers().await?;
        for part in &WORKER_PARTS {
            let requested = variable_value(env, part.variable);
            if is_pending(requested, used_image(part, &workers)) {
                let name = part.name;
                return Ok(Some(format!("waiting for {OPERATOR} to change the image of {name}")));
            }
        }
        for (name, worker) in WORKERS.into_iter().zip(&workers) {
            if !worker.is_null() && !is_rolled_out(worker) {
                return Ok(Some(self.pod_reason(name, worker).await));
            }
        }
        Ok(None)
    }

    /// Explains what the new pods of a Deployment are waiting for, if the user may see pods.
    async fn pod_reason(&self, name: &str, deployment: &Value) -> String {
        let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
        let labels = labels.into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
        let selector = labels.collect::<Vec<_>>().join(",");
        let selector = Some(("labelSelector", selector.as_str()));
        let found = self.cluster.list_objects(ResourceKind::PODS, selector).await;
        let mut reasons = found.iter().flatten().map(pods::wait_reason);
        let cause = reasons.find(|reason| {
            use WaitReason::{Crashing, Image, Starting, Unscheduled};
            matches!(reason, Image(_) | Crashing(_) | Unscheduled(_) | Starting(Some(_)))
        });
        let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("waiting for the pods of deployment/{name}{cause}")
    }
}

/// Returns the image of a part that is in effect.
pub(super) fn used_image<'a>(part: &WorkerPart, workers: &'a [Value; 2]) -> Option<&'a str> {
    let [controllers, proxy] = workers;
    match part.copied_to {
        Some(variable) => variable_value(container_field(controllers, "env"), variable),
        None => container_field(proxy, "image").as_str(),
    }
}

/// Returns true if the operator has not put a requested image into effect.
pub(super) fn is_pending(requested: Option<&str>, used: Option<&str>) -> bool {
    used.is_some() && requested.is_some() && used != requested
}

/// Returns true if all pods of a Deployment are new and available, as `kubectl rollout status`
/// determines it.
fn is_rolled_out(deployment: &Value) -> bool {
    let number = |value: &Value, default| value.as_u64().unwrap_or(default);
    let status = |name: &str| number(&deployment["status"][name], 0);
    let updated = status("updatedReplicas");
    status("observedGeneration") >= number(&deployment["metadata"]["generation"], 0)
        && updated >= number(&deployment["spec"]["replicas"], 1)
        && status("replicas") <= updated
        && status("availableReplicas") >= updated
}
