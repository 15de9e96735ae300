//! A trial of our importer beside CDI's: both import the same image into volumes of the same class,
//! one after the other on the same node, and then their disks are compared.
//!
//! CDI's controllers run the first import. Its pod is copied for the second one, so that both have
//! the same settings and limits. Nothing that CDI owns is changed. All objects belong to one
//! DataVolume, so Kubernetes removes them with it.

mod cost;
mod manifest;

use std::time::Duration;

use program::exit::ExitReason;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub use self::cost::ImportCost;
use self::cost::ObservedImport;
use self::manifest::{compare_disks, copy_claim, copy_importer};
use super::Cluster;
use super::config::is_our_image;
use super::object::{PREFIX, printable_line, text_at};
use super::reader::ReaderState;
use super::resource::ResourceKind;
use super::uid::ObjectUid;
use super::volume::{WantedVolume, build_manifest};
use super::wait::INTERVAL;
use crate::error::{PluginError, PluginErrorKind};

/// The label of all objects of trials.
const TRIAL_LABEL: &str = "kubectl-cdi/try";

/// The annotation with the owner of a trial, a random word on the user's machine.
const OWNER: &str = "kubectl-cdi/try-owner";

/// Number of restarts after which the import by CDI has failed. CDI retries without a limit.
const MAX_RESTARTS: u64 = 3;

/// The kinds of objects of a trial, in the order in which they are deleted: CDI would replace a
/// claim of its DataVolume.
const KINDS: [ResourceKind; 3] =
    [ResourceKind::DATA_VOLUMES, ResourceKind::PODS, ResourceKind::CLAIMS];

/// The text before the offset in the sentence of `cdi-importer compare`.
const DIFFERENCE: &str = "differ at byte ";

/// A trial that has not begun.
pub struct ImportTrial {
    /// The cluster and the namespace.
    pub cluster: Cluster,
    /// The DataVolume. Its claim must be bound without a consumer.
    pub wanted: WantedVolume,
    /// The owner of the trial's objects ([`Cluster::remove_trials`]).
    pub owner: String,
    /// The container image of our importer.
    pub image: String,
    /// Time limit for each import.
    pub time_limit: Duration,
}

/// The result of a trial, as printed with `--output json`.
#[derive(Debug, Serialize)]
pub struct TrialReport {
    /// The URL of the imported image.
    pub url: String,
    /// True if the disks are equal; `None` if an import has failed.
    pub equal: Option<bool>,
    /// The offset of the first byte in which the disks differ.
    pub first_difference: Option<u64>,
    /// The import by CDI.
    pub theirs: ImportCost,
    /// The import by our image.
    pub ours: ImportCost,
}

impl TrialReport {
    /// Fails if an import has failed, or if the disks differ.
    pub fn conclude(&self) -> Result<(), PluginError> {
        for ImportCost { image, error, .. } in [&self.theirs, &self.ours] {
            if let Some(error) = error {
                return Err(PluginError::unread(format!(
                    "the import with {image} failed: {error}"
                )));
            }
        }
        self.first_difference.map_or(Ok(()), |offset| {
            let words = format!("the disks {DIFFERENCE}{offset}: please report this with the URL");
            Err(PluginError::new(ExitReason::Image, words))
        })
    }
}

impl Cluster {
    /// Fails if the user lacks a right that a trial needs, or if CDI uses our importer already.
    pub async fn check_trial(&self, image: &str) -> Result<(), PluginError> {
        for kind in KINDS {
            for verb in ["create", "get", "list", "delete"] {
                self.check_right(verb, kind, "", "").await?;
            }
        }
        // Few users may read this. Otherwise the pod shows it.
        let theirs = self.worker_image("IMPORTER_IMAGE").await.ok().flatten();
        check_other_image(&theirs.unwrap_or_default(), image)
    }

    /// Removes the objects of all trials of `owner`.
    pub async fn remove_trials(&self, owner: &str) -> Result<(), PluginError> {
        let mut result = Ok(());
        for kind in KINDS {
            let objects = self.list_objects(kind, Some(("labelSelector", TRIAL_LABEL))).await?;
            let is_own = |object: &&Value| object["metadata"]["annotations"][OWNER] == owner;
            for object in objects.iter().filter(is_own) {
                let name = text_at(object, "/metadata/name").unwrap_or_default();
                let uid = text_at(object, "/metadata/uid").and_then(ObjectUid::parse);
                let Some(uid) = uid else { continue };
                match self.delete_object(kind, name, &uid).await {
                    Err(error) if error.kind == PluginErrorKind::NotFound => {}
                    deleted => result = result.and(deleted),
                }
            }
        }
        result
    }
}

/// Fails if CDI's importer, `theirs`, is not another one than ours, `image`.
fn check_other_image(theirs: &str, image: &str) -> Result<(), PluginError> {
    let mut ours = ["cdi-importer", "cdi-importer-vddk"].into_iter();
    if theirs != image && !ours.any(|worker| is_our_image(theirs, worker)) {
        return Ok(());
    }
    let theirs = printable_line(theirs);
    Err(PluginError::target(format!(
        "CDI already imports with {theirs}: there is nothing to compare; run `kubectl cdi images restore` first"
    )))
}

impl ImportTrial {
    /// Runs the trial. Calls `told` with each step and each new reason for waiting. The caller
    /// removes the objects afterwards, however the trial ends.
    pub async fn run(
        &self,
        url: &str,
        mut told: impl FnMut(&str),
    ) -> Result<TrialReport, PluginError> {
        let (target, volume) = (&self.wanted.target, self.wanted.target.name());
        told(&format!("{target}: CDI imports {url}"));
        let uid = self.create_volume().await?;
        let theirs = self.await_theirs(&mut told).await?;
        check_other_image(&theirs.cost.image, &self.image)?;
        let name = format!("{volume}-ours");
        let pod = copy_importer(&theirs.pod, &self.image, &name, self.cluster.chooses_uid().await);
        let pod = pod.ok_or_else(|| {
            PluginError::target("the importer pod of CDI ended before it could be read: try again")
        })?;
        told(&format!("{} imports the same", self.image));
        let claim = copy_claim(&self.cluster.find_target(target).await?.claim);
        self.create(ResourceKind::CLAIMS, &name, claim, &uid).await?;
        self.create(ResourceKind::PODS, &name, pod.clone(), &uid).await?;
        let ours = self.await_pod(&name, &mut told).await?;
        let (mut equal, mut first_difference) = (None, None);
        if theirs.cost.error.is_none() && ours.cost.error.is_none() {
            told("the disks are compared");
            let comparison = compare_disks(&pod, [volume, &name]);
            let name = format!("{volume}-compare");
            self.create(ResourceKind::PODS, &name, comparison, &uid).await?;
            let compared = self.await_pod(&name, &mut told).await?;
            first_difference = compared.cost.error.as_deref().map(parse_offset).transpose()?;
            equal = Some(first_difference.is_none());
        }
        let (theirs, ours) = (theirs.cost, ours.cost);
        Ok(TrialReport { url: url.to_owned(), equal, first_difference, theirs, ours })
    }

    /// Creates the DataVolume. Its importer pod is kept when it has ended.
    async fn create_volume(&self) -> Result<ObjectUid, PluginError> {
        let mut volume = build_manifest(&self.wanted);
        let annotations = &mut volume["metadata"]["annotations"];
        annotations[format!("{PREFIX}storage.pod.retainAfterCompletion")] = json!("true");
        annotations[format!("{PREFIX}storage.deleteAfterCompletion")] = json!("false");
        self.mark(&mut volume);
        let target = &self.wanted.target;
        let made = self.cluster.create_object(ResourceKind::DATA_VOLUMES, target.name(), &volume);
        ObjectUid::from_object(&made.await?, target)
    }

    /// Creates an object that belongs to the DataVolume with this UID.
    async fn create(
        &self,
        kind: ResourceKind,
        name: &str,
        mut object: Value,
        uid: &ObjectUid,
    ) -> Result<(), PluginError> {
        object["metadata"]["name"] = json!(name);
        // Without `blockOwnerDeletion`, which needs another right in some clusters.
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "name": self.wanted.target.name(),
            "uid": uid.as_str(),
        }]);
        self.mark(&mut object);
        self.cluster.create_object(kind, name, &object).await.map(drop)
    }

    fn mark(&self, object: &mut Value) {
        object["metadata"]["labels"][TRIAL_LABEL] = json!(self.wanted.target.name());
        object["metadata"]["annotations"][OWNER] = json!(self.owner);
    }

    /// Waits until CDI's import has ended.
    async fn await_theirs(
        &self,
        told: &mut impl FnMut(&str),
    ) -> Result<ObservedImport, PluginError> {
        let (target, mut import) = (&self.wanted.target, ObservedImport::default());
        let mut last = None;
        let following = self.cluster.follow_import(target, self.time_limit, |progress| {
            if last != progress.sentence {
                last.clone_from(&progress.sentence);
                told(last.as_deref().unwrap_or(&progress.phase));
            }
        });
        let watching = async {
            while import.cost.restarts < MAX_RESTARTS {
                import.look_at_target(&self.cluster, target).await;
                sleep(INTERVAL).await;
            }
            Err(PluginError::unread("it is restarted again and again"))
        };
        let ended = tokio::select! {
            ended = following => ended,
            ended = watching => ended,
        };
        import.look_at_target(&self.cluster, target).await;
        match ended {
            Err(failure) if import.pod.is_null() => return Err(failure),
            Err(failure) => import.fail(failure.to_string()),
            Ok(()) => {}
        }
        Ok(import)
    }

    /// Waits until a pod of this trial has ended.
    async fn await_pod(
        &self,
        name: &str,
        told: &mut impl FnMut(&str),
    ) -> Result<ObservedImport, PluginError> {
        let (started, mut last) = (Instant::now(), String::new());
        let mut import = ObservedImport::default();
        loop {
            let waiting = match import.look_at_pod(&self.cluster, name).await {
                Ok(ReaderState::Running) => "waiting for the pod to finish".to_owned(),
                Ok(ReaderState::Waiting(reason)) => reason.to_string(),
                Ok(ReaderState::Gone) => {
                    return Err(PluginError::target(format!("pod/{name} was deleted: try again")));
                }
                Ok(ReaderState::Failed(words) | ReaderState::Ended(words)) => {
                    if import.pod["status"]["phase"] != "Succeeded" {
                        import.fail(words);
                    } else if import.needs_scratch {
                        import
                            .fail("it needs scratch space, which a trial does not give".to_owned());
                    }
                    return Ok(import);
                }
                Err(error) if error.may_pass() => error.to_string(),
                Err(error) => return Err(error),
            };
            if started.elapsed() >= self.time_limit {
                return Err(PluginError::target(format!(
                    "pod/{name} has not ended after {} s: {waiting}; give a longer --timeout",
                    self.time_limit.as_secs()
                )));
            }
            if waiting != last {
                told(&waiting);
            }
            last = waiting;
            sleep(INTERVAL).await;
        }
    }
}

/// Returns the offset in the sentence of a comparison that has found a difference.
fn parse_offset(words: &str) -> Result<u64, PluginError> {
    let offset = words.rsplit_once(DIFFERENCE).and_then(|(_, offset)| offset.trim().parse().ok());
    offset.ok_or_else(|| PluginError::unread(format!("the disks cannot be compared: {words}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_importer_can_be_compared() {
        let ours = "registry.example/cdi-workers/cdi-importer:0.1.0";
        for (theirs, is_other) in [
            ("quay.io/kubevirt/cdi-importer:v1.66.1", true),
            (ours, false),
            ("registry.example/a/cdi-importer-vddk:0.2.0", false),
        ] {
            assert_eq!(check_other_image(theirs, ours).is_ok(), is_other, "{theirs}");
        }
        assert!(check_other_image("localhost/importer:dev", "localhost/importer:dev").is_err());
    }
}
