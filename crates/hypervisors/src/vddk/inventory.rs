//! Finds and lists the machines of a vSphere.

use fetch::error::invalid_error;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use stream::error::SourceError;

use super::address::MachineName;
use super::answer::{ManagedObjectReference, first_child};
use super::soap::VsphereSession;
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
    pub id: String,
    /// The name, as vSphere stores it: `%2f` for a slash.
    pub name: String,
    /// The instance UUID.
    pub uuid: Option<String>,
}

impl MachineEntry {
    fn from_object(object: &XmlElement) -> Result<Option<Self>, SourceError> {
        let property = |path: &str| {
            let mut sets = object.children_named("propSet");
            sets.find(|set| set.text_of("name") == Some(path))?.text_of("val").map(str::to_owned)
        };
        let (Some(found), Some(name)) = (object.text_of("obj"), property("name")) else {
            return Ok(None);
        };
        let id = ManagedObjectReference::from_name(KIND, found)?.name;
        let uuid = property("config.instanceUuid").filter(|uuid| is_uuid(uuid));
        Ok(Some(Self { id, name, uuid }).filter(|machine| machine.name.len() <= MAX_NAME_BYTES))
    }

    fn candidate(&self) -> String {
        format!("{} ({})", self.name, self.id)
    }

    fn is_called(&self, wanted: &str) -> bool {
        let decoded = || percent_decode_str(&self.name).decode_utf8_lossy();
        self.id == wanted || self.name == wanted || decoded() == wanted
    }
}

/// Finds a machine.
pub(super) async fn find_machine(
    session: &mut VsphereSession,
    name: &MachineName,
) -> Result<ManagedObjectReference, SourceError> {
    let wanted = name.as_str();
    let is_only_uuid = matches!(name, MachineName::Uuid(_));
    if is_only_uuid || is_uuid(wanted) {
        for of_instance in [true, false] {
            if let Some(machine) = session.find_machine(wanted, of_instance).await? {
                return Ok(machine);
            }
        }
    }
    if is_only_uuid {
        return Err(invalid_error(format!("vSphere has no machine with uuid {wanted}")));
    }
    if wanted.contains('/') {
        let index = session.manager_reference("SearchIndex", "searchIndex")?;
        let path = escape_text(wanted.trim_matches('/'));
        let arguments = format!("<inventoryPath>{path}</inventoryPath>");
        let answer = session.call_method(&index, "FindByInventoryPath", &arguments).await?;
        // Folders and hosts have paths as well.
        let is_machine =
            |found: &XmlElement| found.kind.as_ref().is_some_and(|kind| kind.ends_with(KIND));
        if let Some(found) = first_child(answer).filter(is_machine) {
            return ManagedObjectReference::from_name(KIND, &found.text);
        }
    }
    let machines = list_machines(session).await?;
    let named: Vec<_> = machines.iter().filter(|machine| machine.is_called(wanted)).collect();
    match named[..] {
        [machine] => Ok(ManagedObjectReference::new(KIND, &machine.id)),
        [] => Err(invalid_error(format!(
            "vSphere has no machine {wanted:?}: {}",
            list_candidates(machines.iter().map(MachineEntry::candidate))
        ))),
        _ => Err(invalid_error(format!(
            "vSphere has {} machines called {wanted:?}, use the id of one: {}",
            named.len(),
            list_candidates(named.iter().map(|machine| machine.candidate()))
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
    let view = ManagedObjectReference::new(
        "ContainerView",
        first_child(view).unwrap_or_default().text.trim(),
    );
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
        let page = first_child(page).unwrap_or_default();
        for object in page.children_named("objects") {
            machines.extend(MachineEntry::from_object(object)?);
        }
        match page.text_of("token").filter(|_| machines.len() < MAX_MACHINES) {
            Some(token) => arguments = format!("<token>{}</token>", escape_text(token)),
            None => break,
        }
        method = "ContinueRetrievePropertiesEx";
    }
    machines.truncate(MAX_MACHINES);
    Ok(machines)
}

/// Lists what there is in place of something that is missing, for an error.
pub(super) fn list_candidates(all: impl ExactSizeIterator<Item = String>) -> String {
    let count = all.len();
    let shown: Vec<_> =
        all.take(CANDIDATES).map(|one| printable::escape_line(&one, CANDIDATE_CHARS)).collect();
    let more = count.saturating_sub(CANDIDATES);
    match (count, more) {
        (0, _) => "there are none".to_owned(),
        (_, 0) => format!("there are {}", shown.join(", ")),
        _ => format!("there are {} and {more} more", shown.join(", ")),
    }
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
        let machine = MachineEntry::from_object(&object).unwrap().unwrap();
        for (name, is_it) in [("a/b", true), ("a%2fb", true), ("vm-7", true), ("a", false)] {
            assert_eq!(machine.is_called(name), is_it, "{name}");
        }
        assert_eq!(machine.candidate(), "a%2fb (vm-7)");
    }

    #[test]
    fn lists_of_candidates_are_short() {
        let list = |count| list_candidates((0..count).map(|_| "x\u{1b}".repeat(1000)));
        assert_eq!(list(0), "there are none");
        assert!(list(10_000).len() < 4000 && list(10_000).ends_with(" and 9990 more"));
    }
}
