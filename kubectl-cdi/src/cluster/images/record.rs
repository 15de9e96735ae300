//! The variables of the object that is changed, and the record of the previous ones: an annotation
//! of the same object, so that one request writes both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PartImage;
use crate::cluster::object::{list_at, text_at};

/// The annotation with the record.
pub(super) const RECORD: &str = "kubectl-cdi/images-before";

/// The variables as they were before the first change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RestoreRecord {
    pub(super) variables: BTreeMap<String, RecordedVariable>,
    /// The outermost field that was absent: `config` of a Subscription, or the list `env`.
    absent: Option<String>,
}

/// A variable that was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedVariable {
    /// The previous variable. `None` if it was absent.
    pub(super) before: Option<Value>,
    /// The image that replaced it. If the variable has another one, it was changed afterwards.
    pub(super) set: String,
}

impl RestoreRecord {
    /// Reads the record of an object. `None` if it is absent or damaged.
    pub(super) fn read(object: &Value) -> Option<Self> {
        let text = object["metadata"]["annotations"][RECORD].as_str()?;
        serde_json::from_str(text).ok()
    }
}

/// The list of variables in a Deployment or a Subscription.
pub(super) struct HeldVariables<'a> {
    object: &'a Value,
    /// The container of a Deployment. `None` for a Subscription.
    container: Option<usize>,
    pub(super) list: &'a Value,
}

impl<'a> HeldVariables<'a> {
    pub(super) fn new(object: &'a Value, container: Option<usize>) -> Self {
        let list = match container {
            Some(at) => &object["spec"]["template"]["spec"]["containers"][at]["env"],
            None => &object["spec"]["config"]["env"],
        };
        Self { object, container, list }
    }

    /// Returns the value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        variable_value(self.list, name)
    }

    /// Returns the list with these images, and adds what they replace to `record`. A variable that
    /// is still as recorded keeps its record, which describes the time before the first change.
    pub(super) fn with_images(&self, images: &[PartImage], record: &mut RestoreRecord) -> Value {
        if record.variables.is_empty() {
            let has_parent = self.container.is_some() || self.object["spec"]["config"].is_object();
            record.absent = match self.list {
                Value::Null if has_parent => Some("env".to_owned()),
                Value::Null => Some("config".to_owned()),
                _ => None,
            };
        }
        let mut list = self.list.as_array().cloned().unwrap_or_default();
        for (part, image) in images {
            let name = part.variable;
            let found = list.iter_mut().rfind(|variable| variable["name"] == name);
            match record.variables.get_mut(name) {
                Some(recorded) if self.value(name) == Some(&recorded.set) => {
                    recorded.set.clone_from(image);
                }
                _ => {
                    let before = found.as_deref().cloned();
                    let recorded = RecordedVariable { before, set: image.clone() };
                    record.variables.insert(name.to_owned(), recorded);
                }
            }
            let variable = json!({"name": name, "value": image});
            match found {
                Some(found) => *found = variable,
                None => list.push(variable),
            }
        }
        Value::Array(list)
    }

    /// Returns the list as it was before; null if there was none. Variables that were changed
    /// afterwards stay.
    pub(super) fn restored(&self, record: &RestoreRecord) -> Value {
        let mut list = self.list.as_array().cloned().unwrap_or_default();
        for (name, recorded) in &record.variables {
            let found = list.iter().rposition(|variable| variable["name"] == *name);
            let Some(at) = found.filter(|_| self.value(name) == Some(&recorded.set)) else {
                continue;
            };
            match &recorded.before {
                Some(before) => list[at].clone_from(before),
                None => drop(list.remove(at)),
            }
        }
        if list.is_empty() && record.absent.is_some() { Value::Null } else { Value::Array(list) }
    }

    /// Returns the merge patch that writes the list and the record, if the object is unchanged.
    pub(super) fn patch(&self, list: Value, record: Option<&RestoreRecord>) -> Value {
        let spec = match self.container {
            Some(at) => {
                // A merge patch replaces arrays as a whole, and null is not a value in them.
                let mut all = self.object["spec"]["template"]["spec"]["containers"].clone();
                if let Some(container) = all.get_mut(at).and_then(Value::as_object_mut) {
                    match list {
                        Value::Null => container.remove("env"),
                        list => container.insert("env".to_owned(), list),
                    };
                }
                json!({"template": {"spec": {"containers": all}}})
            }
            None => {
                let config = self.object["spec"]["config"].as_object();
                let is_alone = config.is_some_and(|config| config.len() == 1);
                let before = RestoreRecord::read(self.object).and_then(|before| before.absent);
                let was_absent = is_alone && before.as_deref() == Some("config");
                let config = if list.is_null() && was_absent { list } else { json!({"env": list}) };
                json!({"config": config})
            }
        };
        let written = record.map(|record| json!(record).to_string());
        let version = &self.object["metadata"]["resourceVersion"];
        json!({"metadata": {"resourceVersion": version, "annotations": {RECORD: written}}, "spec": spec})
    }
}

/// Returns the position of the container with the name of its Deployment; of the first one if no
/// container has it.
pub(super) fn main_container(deployment: &Value) -> usize {
    let name = &deployment["metadata"]["name"];
    let containers = list_at(deployment, "/spec/template/spec/containers");
    containers.iter().position(|container| container["name"] == *name).unwrap_or(0)
}

/// Returns a field of a Deployment's main container.
pub(super) fn container_field<'a>(deployment: &'a Value, name: &str) -> &'a Value {
    &deployment["spec"]["template"]["spec"]["containers"][main_container(deployment)][name]
}

/// Returns the value of a variable in a list. Of several variables with the same name, Kubernetes
/// uses the last one.
pub(super) fn variable_value<'a>(env: &'a Value, name: &str) -> Option<&'a str> {
    let mut variables = env.as_array().map_or(&[][..], Vec::as_slice).iter();
    text_at(variables.rfind(|variable| variable["name"] == name)?, "/value")
}

#[cfg(test)]
mod tests {
    use super::super::WORKER_PARTS;
    use super::*;

    /// Applies a merge patch (RFC 7396 §2).
    fn merge(object: &mut Value, patch: &Value) {
        let Some(fields) = patch.as_object() else {
            *object = patch.clone();
            return;
        };
        if !object.is_object() {
            *object = json!({});
        }
        for (name, value) in fields {
            if value.is_null() {
                object.as_object_mut().unwrap().remove(name);
            } else {
                merge(&mut object[name], value);
            }
        }
    }

    fn variable(name: &str, value: &str) -> Value {
        json!({"name": name, "value": value})
    }

    fn set(object: &mut Value, container: Option<usize>, image: &str) {
        let mut record = RestoreRecord::read(object).unwrap_or_default();
        let held = HeldVariables::new(object, container);
        let images = [(&WORKER_PARTS[0], image.to_owned()), (&WORKER_PARTS[4], image.to_owned())];
        let list = held.with_images(&images, &mut record);
        let patch = held.patch(list, Some(&record));
        merge(object, &patch);
    }

    fn restore(object: &mut Value, container: Option<usize>) {
        let record = RestoreRecord::read(object).unwrap();
        let held = HeldVariables::new(object, container);
        let patch = held.patch(held.restored(&record), None);
        merge(object, &patch);
    }

    #[test]
    fn every_object_is_restored_as_it_was() {
        let container = |env: &Value| json!({"template": {"spec": {"containers": [{"name": "a"}, {"env": env}]}}});
        let of = |name: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "x"}}});
        let old = json!([variable("A", "1"), of("CLONER_IMAGE"), variable("B", "2")]);
        for (at, spec) in [
            (None, json!({})),
            (None, json!({"config": {}})),
            (None, json!({"config": {"env": []}})),
            (None, json!({"config": {"resources": {}}})),
            (None, json!({"config": {"env": old}})),
            (Some(0), container(&old)),
            (Some(1), container(&old)),
        ] {
            let before = json!({"metadata": {"annotations": {"a": "b"}, "resourceVersion": "7"}, "spec": spec});
            let mut object = before.clone();
            set(&mut object, at, "r/i:1");
            set(&mut object, at, "r/i:2");
            assert_eq!(HeldVariables::new(&object, at).value("CLONER_IMAGE"), Some("r/i:2"));
            restore(&mut object, at);
            assert_eq!(object, before);
        }
    }

    #[test]
    fn variables_that_were_changed_afterwards_are_recorded_again_or_kept() {
        let mut object = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"config": {"env": [variable("IMPORTER_IMAGE", "up:1")]}}});
        let upgraded = json!({"spec": {"config": {"env": [variable("IMPORTER_IMAGE", "up:2"), variable("CLONER_IMAGE", "r/i:1")]}}});
        set(&mut object, None, "r/i:1");
        merge(&mut object, &upgraded);
        let mut again = object.clone();
        restore(&mut object, None);
        assert_eq!(object["spec"]["config"]["env"], json!([variable("IMPORTER_IMAGE", "up:2")]));
        set(&mut again, None, "r/i:3");
        restore(&mut again, None);
        assert_eq!(again, object);
    }
}
