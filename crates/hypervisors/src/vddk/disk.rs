//! Finds the disk of a machine, and describes it as vSphere and nbdkit require.

use fetch::error::invalid_error;
use serde::Serialize;
use stream::error::SourceError;

use super::answer::ManagedObjectReference;
use super::change_id::{BEGIN_ANEW, ChangeId};
use super::inventory::{self, absent_error};
use super::options::VddkOptions;
use super::soap::VsphereSession;
use crate::xml::XmlElement;

/// Maximum length of the chain of files below a disk. vSphere allows 32 snapshots; upstream
/// examines 25 files.
const MAX_PARENTS: usize = 32;

/// Longest file name of a disk, in bytes (`PATH_MAX` of ESXi's file system is shorter).
const MAX_FILE_BYTES: usize = 4096;

/// Maximum number of snapshots of a machine that are examined.
const MAX_SNAPSHOTS: usize = 1024;

pub(super) const DEVICES: &str = "config.hardware.device";

/// The disk, and the state of it that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocatedDisk {
    /// The machine, such as `vm-42`.
    pub(super) machine: ManagedObjectReference,
    /// The snapshot, if one was requested.
    pub(super) snapshot: Option<ManagedObjectReference>,
    /// The state of the disk in that snapshot.
    pub(super) disk: VirtualDisk,
    /// The earlier state that the target holds, if only the changes since then are read. `None`
    /// also if vSphere seems to be a simulator, in which nothing has changed since then.
    pub(super) since: Option<ChangeId>,
}

/// A virtual disk of a machine or of one of its snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VirtualDisk {
    /// The label, such as `Hard disk 1`.
    pub label: String,
    /// The file, such as `[datastore1] vm/disk-000001.vmdk`.
    pub file: String,
    /// Size of the disk in bytes. It is reported by every vSphere that VDDK 6.5 can read from, and
    /// 6.5 is the oldest version that nbdkit loads.
    pub capacity: Option<u64>,
    /// Identifier of the disk among the disks of its machine, the same in all snapshots:
    /// `diskObjectId`, or the key of the device if that is unknown.
    #[serde(skip)]
    id: String,
    /// Key of the device.
    #[serde(skip)]
    pub(super) key: u32,
    /// Change ID of the disk, if changes are tracked.
    #[serde(skip)]
    pub(super) change_id: Option<ChangeId>,
    /// Controller and unit as in the keys of a lease, such as `ParaVirtualSCSIController0:1`.
    #[serde(skip)]
    pub(super) address: Option<String>,
    /// True if the machine has no other disk.
    #[serde(skip)]
    pub(super) is_only: bool,
    /// True if the file holds the state of the machine or snapshot whose disk this is, and not an
    /// earlier one.
    #[serde(skip)]
    pub(super) is_present: bool,
}

/// A snapshot of a machine.
#[derive(Debug, Serialize)]
pub struct SnapshotEntry {
    /// The object, such as `snapshot-7`.
    #[serde(rename = "id")]
    pub object: ManagedObjectReference,
    /// The name.
    pub name: String,
}

/// Finds the disk that `options` name, in the states that their checkpoints specify.
pub(super) async fn find_disk(
    session: &mut VsphereSession,
    options: &VddkOptions,
) -> Result<LocatedDisk, SourceError> {
    let VddkOptions { machine: name, disk: wanted, checkpoints, .. } = options;
    let machine = inventory::find_machine(session, options).await?;
    let properties = session.read_properties(&machine, &[DEVICES, "snapshot"]).await?;
    let (disks, snapshots) = (list_disks(&properties, wanted), list_snapshots(&properties));
    let with_file = |disks: &[VirtualDisk]| disks.iter().find(|disk| disk.file == *wanted).cloned();
    let mut numbered = disks.iter().enumerate();
    let by_place = numbered.find(|(at, disk)| disk.label == *wanted || at.to_string() == *wanted);
    let mut found = with_file(&disks).or_else(|| by_place.map(|(_, disk)| disk.clone()));
    for snapshot in &snapshots {
        if found.is_none() {
            // This may be the file of a snapshot.
            let properties = session.read_properties(&snapshot.object, &[DEVICES]).await?;
            found = with_file(&list_disks(&properties, wanted))
                .map(|disk| VirtualDisk { is_present: false, ..disk });
        }
    }
    let disk = found.ok_or_else(|| {
        let all = disks.iter().enumerate();
        let all = all.map(|(at, disk)| format!("{at} ({}, {})", disk.label, disk.file));
        absent_error(format!("disk {wanted:?} in the machine {name} or its snapshots"), all)
    })?;
    let Some(current) = &checkpoints.current else {
        return Ok(LocatedDisk { machine, snapshot: None, disk, since: None });
    };
    let snapshot = find_snapshot(&snapshots, current, name)?;
    let now = disk.at_snapshot(session, &snapshot, current).await?;
    let previous = checkpoints.previous.as_deref().map(|name| (name, ChangeId::parse(name)));
    let since = match previous {
        None => None,
        Some((_, Some(id))) => Some(now.check_related(current, id)?),
        Some((previous, None)) => {
            let snapshot = find_snapshot(&snapshots, previous, name)?;
            let before = disk.at_snapshot(session, &snapshot, previous).await?;
            now.later_than(&before, current, previous)?
        }
    };
    Ok(LocatedDisk { machine, snapshot: Some(snapshot), disk: now, since })
}

impl VirtualDisk {
    /// Parses a device among `all` of its machine. The disk is in `wanted` if that is in its chain
    /// of files, otherwise in the file at the top.
    fn from_device(device: &XmlElement, all: &[XmlElement], wanted: &str) -> Option<Self> {
        // Drives for CDs may have files as well, but no size.
        device.child("capacityInKB")?;
        let backing = device.child("backing")?;
        let parents = std::iter::successors(Some(backing), |backing| backing.child("parent"));
        let mut files = parents.take(MAX_PARENTS).filter_map(|backing| backing.text_of("fileName"));
        // The file becomes an argument of nbdkit.
        let is_usual =
            |file: &&str| file.len() <= MAX_FILE_BYTES && !file.contains(char::is_control);
        let top = backing.text_of("fileName").filter(is_usual)?;
        let file = files.find(|file| *file == wanted).filter(is_usual).unwrap_or(top);
        let address = || {
            let key = device.text_of("controllerKey")?;
            let controller = all.iter().find(|one| one.text_of("key") == Some(key))?;
            let kind = controller.kind.as_deref()?.rsplit(':').next()?;
            let (bus, unit) = (controller.text_of("busNumber")?, device.text_of("unitNumber")?);
            Some(format!("{kind}{bus}:{unit}"))
        };
        Some(Self {
            label: device.text_of("deviceInfo/label").unwrap_or_default().to_owned(),
            file: file.to_owned(),
            capacity: device.value_of("capacityInBytes"),
            id: device.text_of("diskObjectId").or_else(|| device.text_of("key"))?.to_owned(),
            key: device.value_of("key")?,
            change_id: backing.text_of("changeId").and_then(ChangeId::parse),
            address: address(),
            is_only: all.iter().filter(|one| one.child("capacityInKB").is_some()).count() == 1,
            is_present: file == top,
        })
    }

    /// Finds the same disk in `snapshot`, which the user calls `name`. In each snapshot, another
    /// file is at the top of the chain.
    pub(super) async fn at_snapshot(
        &self,
        session: &mut VsphereSession,
        snapshot: &ManagedObjectReference,
        name: &str,
    ) -> Result<Self, SourceError> {
        let properties = session.read_properties(snapshot, &[DEVICES]).await?;
        let found = list_disks(&properties, "").into_iter().find(|disk| disk.id == self.id);
        found.ok_or_else(|| {
            invalid_error(format!("vSphere has no such disk in the snapshot {name:?}"))
        })
    }

    /// Returns the change ID of the disk in the snapshot `name`. Fails if changes were not
    /// tracked.
    fn require_change_id(&self, name: &str) -> Result<ChangeId, SourceError> {
        self.change_id.clone().ok_or_else(|| {
            invalid_error(format!(
                "vSphere did not track what changed on the disk {} in the snapshot {name:?}: {BEGIN_ANEW}",
                self.file
            ))
        })
    }

    /// Returns `id` if the disk in the snapshot `current` is a later state of the same run of
    /// tracking.
    fn check_related(&self, current: &str, id: ChangeId) -> Result<ChangeId, SourceError> {
        let now = self.require_change_id(current)?;
        if now.is_related(&id) {
            return Ok(id);
        }
        Err(invalid_error(format!(
            "the change id {id} belongs to another disk, or to an earlier change tracking: the disk {} has {now}; \
             {BEGIN_ANEW}",
            self.file
        )))
    }

    /// Returns the state `before`, of the snapshot `previous`, if vSphere can report what changed
    /// between it and `current`; `None` if vSphere seems to be a simulator.
    fn later_than(
        &self,
        before: &Self,
        current: &str,
        previous: &str,
    ) -> Result<Option<ChangeId>, SourceError> {
        match (before.capacity, self.capacity) {
            (Some(before), Some(now)) if before != now => Err(invalid_error(format!(
                "the disk {} had {before} bytes in the earlier snapshot and has {now} now: import it again from the start",
                self.file
            ))),
            // VMware's simulator reports neither sizes nor change IDs, and its disks never change.
            (None, None) if self.change_id.is_none() && before.change_id.is_none() => {
                tracing::warn!("vSphere does not report the disk size: it is a simulator");
                Ok(None)
            }
            _ => self.check_related(current, before.require_change_id(previous)?).map(Some),
        }
    }
}

/// Finds the snapshot of the machine `machine` that is called `wanted`, or whose object is.
pub(super) fn find_snapshot(
    snapshots: &[SnapshotEntry],
    wanted: &str,
    machine: &str,
) -> Result<ManagedObjectReference, SourceError> {
    let mut all = snapshots.iter();
    let found = all.find(|entry| entry.name == wanted || entry.object.name == wanted);
    found.map(|entry| entry.object.clone()).ok_or_else(|| {
        let all = snapshots.iter().map(|entry| format!("{} ({})", entry.name, entry.object.name));
        absent_error(format!("snapshot {wanted:?} of the machine {machine}"), all)
    })
}

/// Lists the disks of a machine or snapshot with these `properties`, in vSphere's order. A disk
/// whose chain of files includes `wanted` is listed with that file.
pub(super) fn list_disks(properties: &XmlElement, wanted: &str) -> Vec<VirtualDisk> {
    let devices = properties.child(DEVICES).map_or(&[][..], |all| &all.children);
    let parse = |device| VirtualDisk::from_device(device, devices, wanted);
    devices.iter().filter_map(parse).collect()
}

/// Lists all snapshots of a machine with these `properties`, parents first.
pub(super) fn list_snapshots(properties: &XmlElement) -> Vec<SnapshotEntry> {
    let mut found = Vec::new();
    // A list is used instead of recursion, because the server decides how deep snapshots nest.
    let mut waiting: Vec<&XmlElement> = properties.child("snapshot").into_iter().collect();
    while let Some(tree) = waiting.pop() {
        if let Some(object) = tree.text_of("snapshot")
            && let Ok(object) = ManagedObjectReference::from_name("VirtualMachineSnapshot", object)
        {
            let name = tree.text_of("name").unwrap_or_default().to_owned();
            found.push(SnapshotEntry { object, name });
        }
        waiting.extend(tree.children_named("rootSnapshotList"));
        waiting.extend(tree.children_named("childSnapshotList"));
    }
    found.truncate(MAX_SNAPSHOTS);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(xml: &str) -> XmlElement {
        XmlElement::parse(xml.as_bytes()).unwrap()
    }

    fn disk(change_id: Option<&str>, capacity: u64) -> VirtualDisk {
        VirtualDisk {
            label: "Hard disk 1".to_owned(),
            file: "[a] vm/d-000002.vmdk".to_owned(),
            capacity: Some(capacity),
            id: "1-2000".to_owned(),
            key: 2000,
            change_id: change_id.map(|id| ChangeId::parse(id).unwrap()),
            address: None,
            is_only: true,
            is_present: true,
        }
    }

    #[test]
    fn a_disk_is_found_by_any_of_its_files() {
        let devices = element(
            "<p><config.hardware.device><VirtualDevice><key>1</key></VirtualDevice>\
             <VirtualDevice><key>2000</key><deviceInfo><label>Hard disk 1</label></deviceInfo><backing><fileName>[a] vm/d-000002.vmdk</fileName>\
             <parent><fileName>[a] vm/d-000001.vmdk</fileName><parent><fileName>[a] vm/d.vmdk</fileName></parent></parent>\
             <changeId>52 de-61 d5/8</changeId></backing>\
             <capacityInKB>1024</capacityInKB><capacityInBytes>1048576</capacityInBytes><diskObjectId>1-2000</diskObjectId></VirtualDevice>\
             </config.hardware.device></p>",
        );
        let expected = disk(Some("52 de-61 d5/8"), 1 << 20);
        for file in ["[a] vm/d.vmdk", "[a] vm/d-000001.vmdk", "[a] vm/d-000002.vmdk"] {
            let is_present = file == expected.file;
            let expected = VirtualDisk { file: file.to_owned(), is_present, ..expected.clone() };
            assert_eq!(list_disks(&devices, file), [expected]);
        }
        assert_eq!(list_disks(&devices, "[a] vm/e.vmdk"), [expected]);
    }

    #[test]
    fn an_earlier_state_must_have_the_same_tracking_and_size() {
        let (tracked, before) = (disk(Some("52-61/8"), 512), ChangeId::parse("52-61/7").unwrap());
        assert_eq!(tracked.check_related("now", before.clone()).unwrap(), before);
        let refused = |result: Result<ChangeId, SourceError>, reason: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(reason) && message.ends_with(BEGIN_ANEW), "{message}");
        };
        let other = ChangeId::parse("52-62/7").unwrap();
        refused(tracked.check_related("now", other), "belongs to another disk");
        refused(disk(None, 512).check_related("now", before), "did not track what changed");
        let later = disk(None, 512).later_than(&tracked, "now", "then");
        refused(later.map(|_| tracked.change_id.clone().unwrap()), "in the snapshot \"now\"");
        let simulated = VirtualDisk { capacity: None, ..disk(None, 0) };
        assert_eq!(simulated.later_than(&simulated, "b", "a").unwrap(), None);
        let resized = disk(Some("52-61/9"), 1024).later_than(&tracked, "now", "then").unwrap_err();
        assert!(resized.to_string().contains("had 512 bytes"), "{resized}");
    }

    #[test]
    fn snapshots_are_listed_with_their_children() {
        let info = element(
            "<p><snapshot><rootSnapshotList><snapshot>snapshot-1</snapshot><name>a</name>\
             <childSnapshotList><snapshot>snapshot-2</snapshot><name>b</name></childSnapshotList>\
             </rootSnapshotList></snapshot></p>",
        );
        let snapshots = list_snapshots(&info);
        let names: Vec<_> =
            snapshots.iter().map(|entry| (&*entry.name, &*entry.object.name)).collect();
        assert_eq!(names, [("a", "snapshot-1"), ("b", "snapshot-2")]);
    }
}
