//! A change of the operator's images: all variables in one request, so that two parts of CDI never
//! get images of different programs because this one was killed.

use serde_json::Value;

use super::operator::CdiOperator;
use super::record::{RECORD, RestoreRecord, variable_value};
use super::{ImagesGoal, WORKER_PARTS};
use crate::cluster::object::{printable_line, text_at};
use crate::error::{PluginError, PluginErrorKind};

/// Attempts of a change while the object's status changes, as it does during a rollout.
const ATTEMPTS: u32 = 5;

/// A change of the operator's images.
#[derive(Debug)]
pub struct ImagesChange {
    /// The object with the variables, in the notation of users.
    pub holder: String,
    /// The changed variables, one line each. Empty if everything is as wanted already.
    pub lines: Vec<String>,
    /// Variables and their images that the operator's Deployment has at the end; if the flag is
    /// false, that it does not have any longer.
    pub(super) expected: Vec<(&'static str, String, bool)>,
    /// The request. `None` if there is nothing to change.
    patch: Option<Value>,
}

impl CdiOperator {
    /// Changes the images, or only returns what would change: with `Some(true)`, the server
    /// validates it.
    pub async fn change(
        &self,
        goal: &ImagesGoal,
        dry_run: Option<bool>,
    ) -> Result<ImagesChange, PluginError> {
        let (resource, object) = self.holder();
        let name = text_at(object, "/metadata/name").unwrap_or_default().to_owned();
        // Everything that could be refused is requested before the change.
        self.cluster.check_right("patch", resource, "", &name).await?;
        self.workers().await?;
        let (mut object, mut attempts) = (object.clone(), 1);
        loop {
            let planned = self.plan(&object, format!("{}/{name}", resource.short), goal)?;
            let Some(patch) = planned.patch.as_ref().filter(|_| dry_run != Some(false)) else {
                return Ok(planned);
            };
            match self.cluster.patch_object(resource, &name, patch, dry_run.is_some()).await {
                Ok(_) => return Ok(planned),
                Err(error) if error.kind == PluginErrorKind::Changed && attempts < ATTEMPTS => {
                    let now = self.cluster.get_object(resource, &name).await?.unwrap_or_default();
                    if identity(&now) != identity(&object) {
                        return Err(error);
                    }
                    object = now;
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn plan(
        &self,
        object: &Value,
        holder: String,
        goal: &ImagesGoal,
    ) -> Result<ImagesChange, PluginError> {
        let held = self.variables(object);
        let before = RestoreRecord::read(object);
        if before.is_none() && object["metadata"]["annotations"][RECORD].is_string() {
            return Err(PluginError::target(format!(
                "the annotation {RECORD} of {holder} is damaged: remove it, and set the images by hand"
            )));
        }
        let (list, record, is_recorded) = match (goal, before) {
            (ImagesGoal::Use(registry, vddk), before) => {
                let mut record = before.unwrap_or_default();
                (held.with_images(&registry.images(*vddk), &mut record), Some(record), false)
            }
            (ImagesGoal::Restore, Some(record)) => (held.restored(&record), None, true),
            (ImagesGoal::Restore, None) => (held.list.clone(), None, false),
        };
        let (mut lines, mut expected) = (Vec::new(), Vec::new());
        for part in &WORKER_PARTS {
            let name = part.variable;
            let (old, new) = (held.value(name), variable_value(&list, name));
            if old != new {
                let [old, new] = [old, new].map(|it| it.map_or("none".to_owned(), printable_line));
                lines.push(format!("{name}: {old} -> {new}"));
            }
            // Without a variable here, only the owner of the Deployment knows the next image.
            expected.extend(new.or(old).map(|image| (name, image.to_owned(), new.is_some())));
        }
        // A record is removed even if all images were changed afterwards.
        let is_needed = is_recorded || !lines.is_empty();
        let patch = is_needed.then(|| held.patch(list, record.as_ref()));
        Ok(ImagesChange { holder, lines, expected, patch })
    }
}

/// Returns the parts of an object that must be the same in a second attempt. Controllers change the
/// status and other annotations.
fn identity(object: &Value) -> [&Value; 3] {
    [&object["metadata"]["uid"], &object["spec"], &object["metadata"]["annotations"][RECORD]]
}
