//! The versions of CDI, and what their controllers make differently. The other modules make what
//! main and its open pull requests ask for; `versions.json` lists what older pods lack.
//! `ci/compatibility` reads it too.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testkit::fail::OrFail;

use crate::PORT;

static TABLE: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../versions.json")).or_fail("versions.json")
});

/// A release of CDI, or its main branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CdiVersion(&'static str);

impl CdiVersion {
    /// All versions, the oldest first.
    pub fn all() -> Vec<Self> {
        list(&TABLE["versions"]).iter().filter_map(Value::as_str).map(Self).collect()
    }

    /// The differences that came after this version.
    fn differences(self) -> impl Iterator<Item = &'static Value> {
        let place = |name: &Value| list(&TABLE["versions"]).iter().position(|known| known == name);
        let own = place(&json!(self.0)).or_fail(self.0);
        // Those without a version are not in main yet.
        let later = move |change: &&Value| place(&change["since"]).is_none_or(|since| since > own);
        list(&TABLE["differences"]).iter().filter(later)
    }

    /// Returns `pod` as this version makes it.
    pub(crate) fn change_pod(self, pod: &Pod) -> Pod {
        let mut pod = serde_json::to_value(pod).or_fail("a pod");
        for change in self.differences() {
            let spec = &mut pod["spec"];
            remove(spec, &change["pod"]);
            for kind in ["initContainers", "containers"] {
                for container in spec[kind].as_array_mut().into_iter().flatten() {
                    remove(container, &change["container"]);
                    remove(&mut container["securityContext"], &change["security"]);
                    if let Some(variables) = container["env"].as_array_mut() {
                        change_variables(variables, change);
                    }
                }
            }
        }
        serde_json::from_value(pod).or_fail("a pod")
    }

    /// The port of upload servers' Services.
    pub fn upload_port(self) -> u16 {
        let port = self.differences().find_map(|change| change["service"].as_u64());
        port.map_or(PORT, |port| u16::try_from(port).or_fail("a port"))
    }
}

/// Removes the variable that `change` names, or replaces its value if it is `from`.
fn change_variables(variables: &mut Vec<Value>, change: &Value) {
    let is_meant = |variable: &Value| variable["name"] == change["variable"];
    if change["to"].is_null() {
        variables.retain(|variable| !is_meant(variable));
    }
    for variable in variables.iter_mut().filter(|variable| is_meant(variable)) {
        if variable["value"] == change["from"] {
            variable["value"] = change["to"].clone();
        }
    }
}

fn remove(object: &mut Value, field: &Value) {
    if let (Some(object), Some(field)) = (object.as_object_mut(), field.as_str()) {
        object.remove(field);
    }
}

fn list(value: &'static Value) -> &'static [Value] {
    value.as_array().or_fail("a list in versions.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Import, importer};
    use crate::volumes::Claim;

    #[test]
    #[ignore = "tools: mkfs.ext4"]
    fn only_newer_versions_have_what_came_later() {
        let pod = importer(&Claim::filesystem(1 << 24), &Import::default());
        let texts = [
            "\"IMPORTER_REGISTRY_IMAGE_ARCHITECTURE\"",
            "\"FallbackToLogsOnError\"",
            "\"0.06\"",
            "\"IMPORTER_CHECKSUM\"",
            "\"enableServiceLinks\"",
            "\"IMPORTER_ENV_FILE\"",
        ];
        for (version, known) in [("1.62.0", 0), ("1.64.0", 3), ("1.65.0", 5), ("main", 5)] {
            let made = CdiVersion(version).change_pod(&pod);
            let made = serde_json::to_string(&made).or_fail("a pod");
            let has: Vec<_> = texts.iter().filter(|text| made.contains(**text)).collect();
            assert_eq!(has, texts[..known].iter().collect::<Vec<_>>(), "{version}");
        }
        let ports = ["1.64.0", "1.65.0"].map(|version| CdiVersion(version).upload_port());
        assert_eq!(ports, [443, PORT]);
    }
}
