//! The state of the images: what the operator requests, what is in effect, and warnings.

use serde_json::{Value, json};

use super::operator::{CdiOperator, OPERATOR};
use super::owner::OperatorOwner;
use super::record::{RestoreRecord, container_field, variable_value};
use super::rollout::{is_pending, used_image};
use super::{ImagesGoal, KNOWN_VERSIONS, VDDK_IMAGE, WORKER_PARTS, is_known_version};
use crate::cluster::is_our_image;
use crate::cluster::object::{printable_line, text_at};
use crate::cluster::status::align_columns;
use crate::error::PluginError;

/// The state of the images of CDI's workers.
#[derive(Debug)]
pub struct ImagesReport {
    /// The report as JSON, as documented in `docs/use/kubectl-cdi.md`.
    pub json: Value,
    /// Sentences about what an administrator should know.
    pub warnings: Vec<String>,
}

impl CdiOperator {
    /// Reads the state of all parts.
    pub async fn report(&self) -> Result<ImagesReport, PluginError> {
        let workers = self.workers().await?;
        let env = container_field(&self.deployment, "env");
        let (resource, object) = self.holder();
        let (held, record) = (self.variables(object), RestoreRecord::read(object));
        let (mut replaced, mut parts, mut is_changing) = (Vec::new(), Vec::new(), false);
        for part in &WORKER_PARTS {
            let requested = variable_value(env, part.variable);
            let used = used_image(part, &workers);
            let recorded = record.as_ref().and_then(|record| record.variables.get(part.variable));
            let set = recorded.map(|recorded| recorded.set.as_str());
            if set.is_some() && set != held.value(part.variable) {
                replaced.push(part.name);
            }
            is_changing |= is_pending(requested, used);
            let image = used.or(requested);
            let is_named = |name| image.is_some_and(|image| is_our_image(image, name));
            let is_set = image.is_some() && image == set;
            parts.push(json!({
                "part": part.name, "variable": part.variable, "ours": is_set || is_named(part.image) || is_named(VDDK_IMAGE),
                "requested": requested.map(printable_line), "in_effect": used.map(printable_line),
            }));
        }
        let mut warnings: Vec<_> = self.version_warning().into_iter().collect();
        if !replaced.is_empty() {
            warnings.push(format!(
                "an upgrade of CDI, or another change, has replaced the images of {}: run `kubectl cdi images use` again",
                replaced.join(", ")
            ));
        }
        if is_changing {
            let advice = "wait, or look at its log";
            warnings.push(format!("{OPERATOR} has not put all images into effect yet: {advice}"));
        }
        let place = match &self.owner {
            OperatorOwner::HelmRelease(release) => format!("the Helm release {release}"),
            OperatorOwner::Reconciler { place, .. } => place.clone(),
            _ => {
                let name = text_at(object, "/metadata/name").unwrap_or_default();
                format!("{}/{}", resource.short, printable_line(name))
            }
        };
        let json = json!({
            "namespace": self.cluster.namespace(), "set_in": place, "version": self.version(),
            "can_restore": record.is_some(), "images": parts, "warnings": warnings,
        });
        Ok(ImagesReport { json, warnings })
    }

    /// Returns sentences about what `use` cannot guarantee.
    pub fn use_warnings(&self, goal: &ImagesGoal) -> Vec<String> {
        let helm = match &self.owner {
            OperatorOwner::HelmRelease(release) => Some(format!(
                "`helm upgrade {release}` undoes this: set the images in its values as well"
            )),
            _ => None,
        };
        let is_use = matches!(goal, ImagesGoal::Use(..));
        self.version_warning().into_iter().chain(helm).filter(|_| is_use).collect()
    }

    /// Returns a warning if our images are not known to work with this version of CDI.
    fn version_warning(&self) -> Option<String> {
        let version = self.version().filter(|version| !is_known_version(version))?;
        let [first, last] = KNOWN_VERSIONS.map(|it| it.map(|number| number.to_string()).join("."));
        Some(format!("our images are known to work with CDI {first} to {last}, not with {version}"))
    }

    fn version(&self) -> Option<String> {
        let env = container_field(&self.deployment, "env");
        variable_value(env, "OPERATOR_VERSION").map(printable_line)
    }
}

impl ImagesReport {
    /// Formats the report as a table, without the warnings.
    pub fn to_table(&self) -> String {
        let words = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let mut lines =
            vec![["PART", "FROM", "IN EFFECT", "REQUESTED"].map(str::to_owned).to_vec()];
        for part in self.json["images"].as_array().into_iter().flatten() {
            let from = if part["ours"] == true { "cdi-workers" } else { "elsewhere" };
            let (used, requested) = (&part["in_effect"], &part["requested"]);
            // Both are the same, except during a change.
            let shown = if used == requested { "same".to_owned() } else { words(requested) };
            lines.push(vec![words(&part["part"]), from.to_owned(), words(used), shown]);
        }
        let at = |name: &str| words(&self.json[name]);
        let (version, namespace, place) = (at("version"), at("namespace"), at("set_in"));
        let mut table = align_columns(&lines).join("\n");
        table +=
            &format!("\n\nCDI {version} in namespace {namespace}; the images are set in {place}\n");
        if self.json["can_restore"] == true {
            table += "`kubectl cdi images restore` restores the images of before.\n";
        }
        table
    }
}
