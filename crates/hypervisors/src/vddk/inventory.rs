//! Finds and lists the machines of a vSphere.

use std::fmt::Display;

use fetch::error::invalid_error;
use fetch::messages::list_names;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use stream::error::SourceError;

use super::answer::ManagedObjectReference;
use super::options::VddkOptions;
use super::soap::{VsphereSession, properties_of};
use crate::xml::{XmlElement, escape_text};

/// The type of machines.
const KIND: &str = "VirtualMachine";

/// Number of machines that are requested at a time.
const PAGE: usize = 1000;

/// Maximum number of machines that are listed; a vCenter supports fewer.
const MAX_MACHINES: usize = 1 << 16;

/// Longest name of a machine, in bytes: 80 characters, which may be encoded.
const MAX_NAME_BYTES: usize = 1024;

/// Number of candidates that an error lists, and of the characters of each.
const CANDIDATES: usize = 10;
const CANDIDATE_CHARS: usize = 80;

/// A machine of a list.
#[derive(Debug, Serialize)]
pub struct MachineEntry {
    /// The object, such as `vm-42`.
    #[serde(rename = "id")]
    pub object: ManagedObjectReference,
    /// The name, as vSphere stores it: `%2f` for a slash.
    pub name: String,
    /// The instance UUID.
    pub uuid: Option<String>,
}

impl MachineEntry {
    fn from_object(object: &XmlElement) -> Option<Self> {
        let properties = properties_of(object);
        let name = properties.text_of("name").filter(|name| name.len() <= MAX_NAME_BYTES)?;
        let uuid = properties.text_of("config.instanceUuid").filter(|uuid| is_uuid(uuid));
        let object = ManagedObjectReference::from_name(KIND, object.text_of("obj")?).ok()?;
        Some(Self { object, name: name.to_owned(), uuid: uuid.map(str::to_owned) })
    }

    fn is_called(&self, wanted: &str) -> bool {
        let decoded = || percent_decode_str(&self.name).decode_utf8_lossy();
        self.object.name == wanted || self.name == wanted || decoded() == wanted
    }
}

/// Finds the machine that `options` name.
pub(super) async fn find_machine(
    session: &mut VsphereSession,
    options: &VddkOptions,
) -> Result<ManagedObjectReference, SourceError> {
    let wanted = &*options.machine;
    let index = session.manager_reference("SearchIndex", "searchIndex")?;
    if options.is_uuid || is_uuid(wanted) {
        for of_instance in [true, false] {
            let arguments = format!(
                "<uuid>{}</uuid><vmSearch>true</vmSearch><instanceUuid>{of_instance}</instanceUuid>",
                escape_text(wanted)
            );
            let found = session.call_method(&index, "FindByUuid", &arguments).await?;
            if let Some(name) = found.own_text() {
                return ManagedObjectReference::from_name(KIND, name);
            }
        }
    }
    if options.is_uuid {
        return Err(invalid_error(format!("vSphere has no machine with uuid {wanted}")));
    }
    if wanted.contains('/') {
        let path = escape_text(wanted.trim_matches('/'));
        let arguments = format!("<inventoryPath>{path}</inventoryPath>");
        let found = session.call_method(&index, "FindByInventoryPath", &arguments).await?;
        // Folders and hosts have paths as well.
        if found.kind.is_some_and(|kind| kind.ends_with(KIND)) {
            return ManagedObjectReference::from_name(KIND, &found.text);
        }
    }
    let machines = list_machines(session).await?;
    let candidate = |machine: &MachineEntry| format!("{} ({})", machine.name, machine.object.name);
    let named: Vec<_> = machines.iter().filter(|machine| machine.is_called(wanted)).collect();
    match *named {
        [machine] => Ok(machine.object.clone()),
        [] => Err(absent_error(format!("machine {wanted:?}"), machines.iter().map(candidate))),
        _ => Err(invalid_error(format!(
            "vSphere has {} machines called {wanted:?}, use the id of one: {}",
            named.len(),
            list_candidates(named.into_iter().map(candidate))
        ))),
    }
}

/// Lists all machines that the user may see, in vSphere's order.
pub(super) async fn list_machines(
    session: &mut VsphereSession,
) -> Result<Vec<MachineEntry>, SourceError> {
    let views = session.manager_reference("ViewManager", "viewManager")?;
    let root = session.manager_reference("Folder", "rootFolder")?.to_xml("container");
    let arguments = format!("{root}<type>{KIND}</type><recursive>true</recursive>");
    let view = session.call_method(&views, "CreateContainerView", &arguments).await?;
    // vSphere removes the view with the session.
    let view = ManagedObjectReference::new("ContainerView", view.text.trim());
    let collector = session.manager_reference("PropertyCollector", "propertyCollector")?;
    let mut arguments = format!(
        "<specSet><propSet><type>{KIND}</type><pathSet>name</pathSet><pathSet>config.instanceUuid</pathSet></propSet>\
         <objectSet>{}<skip>true</skip>\
         <selectSet xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"TraversalSpec\">\
         <type>ContainerView</type><path>view</path><skip>false</skip></selectSet></objectSet></specSet>\
         <options><maxObjects>{PAGE}</maxObjects></options>",
        view.to_xml("obj")
    );
    let mut method = "RetrievePropertiesEx";
    let mut machines = Vec::new();
    for _ in 0..MAX_MACHINES / PAGE {
        let page = session.call_method(&collector, method, &arguments).await?;
        machines.extend(page.children_named("objects").filter_map(MachineEntry::from_object));
        match page.text_of("token").filter(|_| machines.len() < MAX_MACHINES) {
            Some(token) => arguments = format!("<token>{}</token>", escape_text(token)),
            None => break,
        }
        method = "ContinueRetrievePropertiesEx";
    }
    machines.truncate(MAX_MACHINES);
    Ok(machines)
}

/// Creates the error for something that is missing. `all` is what there is in its place.
pub(super) fn absent_error(
    what: impl Display,
    all: impl ExactSizeIterator<Item = String>,
) -> SourceError {
    invalid_error(format!("vSphere has no {what}: {}", list_candidates(all)))
}

fn list_candidates(all: impl ExactSizeIterator<Item = String>) -> String {
    let shown = all.map(|one| printable::escape_line(&one, CANDIDATE_CHARS));
    format!("there are {}", list_names(shown, CANDIDATES))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_called_by_name_or_object() {
        let xml = "<objects><obj type='VirtualMachine'>vm-7</obj><propSet><name>name</name><val>a%2fb</val></propSet></objects>";
        let object = XmlElement::parse(xml.as_bytes()).unwrap();
        let machine = MachineEntry::from_object(&object).unwrap();
        for (name, is_it) in [("a/b", true), ("a%2fb", true), ("vm-7", true), ("a", false)] {
            assert_eq!(machine.is_called(name), is_it, "{name}");
        }
    }

    #[test]
    fn lists_of_candidates_are_short() {
        let list = |count| list_candidates((0..count).map(|_| "x\u{1b}".repeat(1000)));
        assert_eq!(list(0), "there are none");
        assert!(list(10_000).len() < 4000 && list(10_000).ends_with(" and 9990 more"));
    }
}
