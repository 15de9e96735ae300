//! Which disk of which machine, in the words that nbdkit needs.

use datapath::error::SourceError;

use super::answer::Reference;
use super::soap::Session;
use crate::error::invalid;
use crate::words::plain;
use crate::xml::Element;

/// Longest chain of files below a disk: vSphere allows 32 snapshots, and upstream looks at 25.
const MAX_PARENTS: usize = 32;

/// Longest file of a disk (`PATH_MAX` of ESXi's file system is shorter).
const MAX_FILE_BYTES: usize = 4096;

/// Snapshots of a machine that are looked at.
const MAX_SNAPSHOTS: usize = 1024;

const DEVICES: &str = "config.hardware.device";

/// The disk, as nbdkit finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The name of the machine's object, like `vm-42`.
    pub(super) machine: String,
    /// The name of the snapshot's object, if one was asked for.
    pub(super) snapshot: Option<String>,
    /// The file, like `[datastore1] vm/disk-000001.vmdk`.
    pub(super) file: String,
}

/// Key that tells a disk from the others of its machine, in all snapshots alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DiskId(String);

/// Finds the disk `file` of the machine `uuid`; as it is in `snapshot`, a name or an object's name, if one is given.
pub(super) async fn find(
    session: &mut Session,
    uuid: &str,
    file: &str,
    snapshot: Option<&str>,
) -> Result<Found, SourceError> {
    let machine = match session.machine(uuid, true).await? {
        Some(machine) => Some(machine),
        None => session.machine(uuid, false).await?,
    };
    let machine = machine.ok_or_else(|| missing(&format!("no machine with uuid {uuid}")))?;
    let properties = session.properties(&machine, &[DEVICES, "snapshot"]).await?;
    let snapshots = properties
        .get("snapshot")
        .map(snapshots)
        .transpose()?
        .unwrap_or_default();
    let mut id = properties
        .get(DEVICES)
        .and_then(|devices| disk_with(devices, file));
    for (_, object) in &snapshots {
        if id.is_some() {
            break;
        }
        let devices = session.properties(object, &[DEVICES]).await?;
        id = devices.get(DEVICES).and_then(|devices| disk_with(devices, file));
    }
    let id = id.ok_or_else(|| {
        missing(&format!(
            "no disk {file:?} in the machine {uuid} or its snapshots"
        ))
    })?;
    let (snapshot, file) = match snapshot {
        None => (None, file.to_owned()),
        Some(wanted) => {
            let object = snapshots
                .into_iter()
                .find(|(name, object)| name == wanted || object.name == wanted)
                .map(|(_, object)| object)
                .ok_or_else(|| missing(&format!("no snapshot {wanted:?} of the machine {uuid}")))?;
            let devices = session.properties(&object, &[DEVICES]).await?;
            // By the disk's identifier: each snapshot has another file on top of the chain.
            let file = devices
                .get(DEVICES)
                .and_then(|devices| file_of(devices, &id))
                .ok_or_else(|| missing(&format!("no such disk in the snapshot {wanted:?}")))?;
            check_file(&file)?;
            (Some(object.name), file)
        }
    };
    Ok(Found {
        machine: machine.name,
        snapshot,
        file,
    })
}

/// The disk of which `file` is the topmost file or one below that.
fn disk_with(devices: &Element, file: &str) -> Option<DiskId> {
    devices
        .children
        .iter()
        .find(|device| {
            let parents = std::iter::successors(device.child("backing"), |backing| backing.child("parent"));
            parents
                .take(MAX_PARENTS)
                .any(|backing| backing.text_of("fileName") == Some(file))
        })
        .and_then(id_of)
}

/// The topmost file of a disk.
fn file_of(devices: &Element, id: &DiskId) -> Option<String> {
    let device = devices
        .children
        .iter()
        .find(|device| id_of(device).as_ref() == Some(id))?;
    Some(device.child("backing")?.text_of("fileName")?.to_owned())
}

/// `diskObjectId`, or the key of the device where that is not known.
fn id_of(device: &Element) -> Option<DiskId> {
    let id = device.text_of("diskObjectId").or_else(|| device.text_of("key"))?;
    Some(DiskId(id.to_owned()))
}

/// Refuses what cannot be the file of a disk: it becomes an argument of nbdkit.
fn check_file(file: &str) -> Result<(), SourceError> {
    if file.len() <= MAX_FILE_BYTES && !file.contains(char::is_control) {
        return Ok(());
    }
    Err(missing(&format!(
        "a disk in {:?}, which can be no file",
        plain(file)
    )))
}

/// All snapshots of a tree with their names, parents first.
fn snapshots(info: &Element) -> Result<Vec<(String, Reference)>, SourceError> {
    let mut found = Vec::new();
    let mut waiting: Vec<&Element> = info.children("rootSnapshotList").collect();
    while let Some(tree) = waiting.pop() {
        if found.len() == MAX_SNAPSHOTS {
            break;
        }
        if let Some(object) = tree.text_of("snapshot") {
            let name = tree.text_of("name").unwrap_or_default().to_owned();
            found.push((name, Reference::found("VirtualMachineSnapshot", object)?));
        }
        waiting.extend(tree.children("childSnapshotList"));
    }
    Ok(found)
}

fn missing(what: &str) -> SourceError {
    invalid(format!("vSphere has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(xml: &str) -> Element {
        Element::parse(xml.as_bytes()).unwrap()
    }

    #[test]
    fn a_disk_is_known_by_any_of_its_files() {
        let devices = element(
            "<val><VirtualDevice><key>1</key></VirtualDevice>\
             <VirtualDevice><key>2000</key><backing><fileName>[a] vm/d-000002.vmdk</fileName>\
             <parent><fileName>[a] vm/d-000001.vmdk</fileName><parent><fileName>[a] vm/d.vmdk</fileName></parent></parent>\
             </backing><diskObjectId>1-2000</diskObjectId></VirtualDevice></val>",
        );
        let id = DiskId("1-2000".into());
        for file in ["[a] vm/d.vmdk", "[a] vm/d-000001.vmdk", "[a] vm/d-000002.vmdk"] {
            assert_eq!(disk_with(&devices, file), Some(id.clone()), "{file}");
        }
        assert_eq!(disk_with(&devices, "[a] vm/e.vmdk"), None);
        assert_eq!(file_of(&devices, &id).as_deref(), Some("[a] vm/d-000002.vmdk"));
    }

    #[test]
    fn a_tree_of_snapshots_is_walked() {
        let info = element(
            "<val><rootSnapshotList><snapshot>snapshot-1</snapshot><name>a</name>\
             <childSnapshotList><snapshot>snapshot-2</snapshot><name>b</name></childSnapshotList>\
             </rootSnapshotList></val>",
        );
        let names: Vec<_> = snapshots(&info)
            .unwrap()
            .into_iter()
            .map(|(name, object)| (name, object.name))
            .collect();
        let expected = [("a", "snapshot-1"), ("b", "snapshot-2")];
        assert_eq!(
            names,
            expected.map(|(name, object)| (name.to_owned(), object.to_owned()))
        );
    }
}
