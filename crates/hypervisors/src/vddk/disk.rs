//! Finds the disk of a machine, and describes it as vSphere and nbdkit require.

use fetch::error::invalid_error;
use fetch::messages::plain_line;
use stream::error::SourceError;

use super::address::MachineName;
use super::answer::ManagedObjectReference;
use super::change_id::{BEGIN_ANEW, ChangeId};
use super::inventory::{self, list_candidates};
use super::soap::{ObjectProperties, VsphereSession};
use crate::checkpoints::Checkpoints;
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
    /// The earlier state that the target holds, if only the changes since then are read.
    pub(super) since: Option<EarlierState>,
}

/// An earlier state of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EarlierState {
    /// vSphere can report what changed since then.
    Tracked(ChangeId),
    /// Nothing changed. Used only if vSphere seems to be a simulator.
    Same,
}

/// A virtual disk of a machine or of one of its snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VirtualDisk {
    /// Identifier of the disk among the disks of its machine, the same in all snapshots:
    /// `diskObjectId`, or the key of the device if that is unknown.
    id: String,
    /// Key of the device.
    pub(super) key: u32,
    /// The file, such as `[datastore1] vm/disk-000001.vmdk`.
    pub(super) file: String,
    /// Size of the disk in bytes. It is reported by every vSphere that VDDK 6.5 can read from, and
    /// 6.5 is the oldest version that nbdkit loads.
    pub(super) capacity: Option<u64>,
    /// Change ID of the disk, if changes are tracked.
    pub(super) change_id: Option<ChangeId>,
}

/// Finds the disk `wanted` of the machine `name`, in the states that `checkpoints` specifies.
pub(super) async fn find_disk(
    session: &mut VsphereSession,
    name: &MachineName,
    wanted: &str,
    checkpoints: &Checkpoints,
) -> Result<LocatedDisk, SourceError> {
    let machine = inventory::find_machine(session, name).await?;
    let name = name.as_str();
    let properties = session.read_properties(&machine, &[DEVICES, "snapshot"]).await?;
    let tree = properties.get("snapshot");
    let snapshots = tree.map(list_snapshots).transpose()?.unwrap_or_default();
    let with_file = |properties: &ObjectProperties| {
        let disk = properties.get(DEVICES).and_then(|all| disk_with(all, wanted))?;
        // This may be the file of a snapshot.
        Some(VirtualDisk { file: wanted.to_owned(), ..disk })
    };
    let labelled = list_disks(&properties);
    let mut all = labelled.iter().enumerate();
    let by_place = all.find(|(at, (label, _))| label == wanted || at.to_string() == wanted);
    let mut disk = with_file(&properties).or_else(|| by_place.map(|(_, (_, disk))| disk.clone()));
    for (_, object) in &snapshots {
        if disk.is_some() {
            break;
        }
        disk = with_file(&session.read_properties(object, &[DEVICES]).await?);
    }
    let disk = disk.ok_or_else(|| {
        let all = labelled.iter().enumerate();
        let all = all.map(|(at, (label, disk))| format!("{at} ({label}, {})", disk.file));
        missing_error(&format!(
            "no disk {wanted:?} in the machine {name} or its snapshots: {}",
            list_candidates(all)
        ))
    })?;
    let Some(current) = &checkpoints.current else {
        check_file(&disk.file)?;
        return Ok(LocatedDisk { machine, snapshot: None, disk, since: None });
    };
    let snapshot = find_snapshot(&snapshots, current, name)?.clone();
    let now = disk.at_snapshot(session, &snapshot, current).await?;
    check_file(&now.file)?;
    let since = match &checkpoints.previous {
        None => None,
        Some(previous) => Some(match ChangeId::parse(previous) {
            Some(id) => EarlierState::Tracked(now.check_related(current, id)?),
            None => {
                let before = disk
                    .at_snapshot(session, find_snapshot(&snapshots, previous, name)?, previous)
                    .await?;
                before.check_size(&now)?;
                now.later_than(&before, current, previous)?
            }
        }),
    };
    Ok(LocatedDisk { machine, snapshot: Some(snapshot), disk: now, since })
}

impl LocatedDisk {
    /// Fails if the snapshot has changed since reading began: it is then unknown which state was
    /// read.
    pub(super) async fn check_unchanged(
        &self,
        session: &mut VsphereSession,
    ) -> Result<(), SourceError> {
        let Some(snapshot) = &self.snapshot else {
            return Ok(());
        };
        let now = self.disk.at_snapshot(session, snapshot, &snapshot.name).await?;
        if now == self.disk {
            return Ok(());
        }
        Err(invalid_error(format!(
            "the disk in the snapshot {} was {} when reading began and is {} now",
            snapshot.name,
            plain_line(&self.disk.file),
            plain_line(&now.file)
        )))
    }
}

impl VirtualDisk {
    fn from_device(device: &XmlElement) -> Option<Self> {
        let number = |name| device.text_of(name).and_then(|text| text.parse::<u64>().ok());
        let backing = device.child("backing")?;
        Some(Self {
            id: device.text_of("diskObjectId").or_else(|| device.text_of("key"))?.to_owned(),
            key: device.text_of("key")?.parse().ok()?,
            file: backing.text_of("fileName")?.to_owned(),
            capacity: number("capacityInBytes"),
            change_id: backing.text_of("changeId").and_then(ChangeId::parse),
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
        let devices = properties.get(DEVICES).map_or(&[][..], |all| &all.children);
        let mut disks = devices.iter().filter_map(Self::from_device);
        let found = disks.find(|disk| disk.id == self.id);
        found.ok_or_else(|| missing_error(&format!("no such disk in the snapshot {name:?}")))
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
    /// between it and `current`.
    fn later_than(
        &self,
        before: &Self,
        current: &str,
        previous: &str,
    ) -> Result<EarlierState, SourceError> {
        // VMware's simulator reports neither sizes nor change IDs, and its disks never change.
        if self.capacity.or(before.capacity).is_none()
            && self.change_id.is_none()
            && before.change_id.is_none()
        {
            tracing::warn!("vSphere does not report the disk size: it is a simulator");
            return Ok(EarlierState::Same);
        }
        Ok(EarlierState::Tracked(self.check_related(current, before.require_change_id(previous)?)?))
    }

    fn check_size(&self, later: &Self) -> Result<(), SourceError> {
        match (self.capacity, later.capacity) {
            (Some(before), Some(now)) if before != now => Err(invalid_error(format!(
                "the disk {} had {before} bytes in the earlier snapshot and has {now} now: import it again from the start",
                later.file
            ))),
            _ => Ok(()),
        }
    }
}

/// Finds the snapshot of the machine `machine` that is called `wanted`, or whose object is.
pub(super) fn find_snapshot<'s>(
    snapshots: &'s [(String, ManagedObjectReference)],
    wanted: &str,
    machine: &str,
) -> Result<&'s ManagedObjectReference, SourceError> {
    let mut all = snapshots.iter();
    let found = all.find(|(name, object)| name == wanted || object.name == wanted);
    found.map(|(_, object)| object).ok_or_else(|| {
        let all = snapshots.iter().map(|(name, object)| format!("{name} ({})", object.name));
        let all = list_candidates(all);
        missing_error(&format!("no snapshot {wanted:?} of the machine {machine}: {all}"))
    })
}

/// Lists the disks of a machine with their labels, such as `Hard disk 1`, in vSphere's order.
pub(super) fn list_disks(properties: &ObjectProperties) -> Vec<(String, VirtualDisk)> {
    let devices = properties.get(DEVICES).map_or(&[][..], |all| &all.children);
    // Drives for CDs may have files as well, but no size.
    let disks = devices.iter().filter(|device| device.child("capacityInKB").is_some());
    let labelled = disks.filter_map(|device| {
        let label = device.child("deviceInfo").and_then(|info| info.text_of("label"));
        Some((label.unwrap_or_default().to_owned(), VirtualDisk::from_device(device)?))
    });
    labelled.collect()
}

/// Finds the disk whose chain of files includes `file`.
fn disk_with(devices: &XmlElement, file: &str) -> Option<VirtualDisk> {
    let is_it = |device: &&XmlElement| {
        let parents =
            std::iter::successors(device.child("backing"), |backing| backing.child("parent"));
        parents.take(MAX_PARENTS).any(|backing| backing.text_of("fileName") == Some(file))
    };
    devices.children.iter().find(is_it).and_then(VirtualDisk::from_device)
}

/// Rejects text that cannot be the file of a disk, because it becomes an argument of nbdkit.
fn check_file(file: &str) -> Result<(), SourceError> {
    if file.len() <= MAX_FILE_BYTES && !file.contains(char::is_control) {
        return Ok(());
    }
    Err(missing_error(&format!("a disk in {:?}, which is not a valid file name", plain_line(file))))
}

/// Lists all snapshots of a tree with their names, parents first.
pub(super) fn list_snapshots(
    info: &XmlElement,
) -> Result<Vec<(String, ManagedObjectReference)>, SourceError> {
    let mut found = Vec::new();
    // A list is used instead of recursion, because the server decides how deep snapshots nest.
    let mut waiting: Vec<&XmlElement> = info.children_named("rootSnapshotList").collect();
    while let Some(tree) = waiting.pop() {
        if found.len() == MAX_SNAPSHOTS {
            break;
        }
        if let Some(object) = tree.text_of("snapshot") {
            let name = tree.text_of("name").unwrap_or_default().to_owned();
            found
                .push((name, ManagedObjectReference::from_name("VirtualMachineSnapshot", object)?));
        }
        waiting.extend(tree.children_named("childSnapshotList"));
    }
    Ok(found)
}

fn missing_error(what: &str) -> SourceError {
    invalid_error(format!("vSphere has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(xml: &str) -> XmlElement {
        XmlElement::parse(xml.as_bytes()).unwrap()
    }

    fn disk(change_id: Option<&str>, capacity: u64) -> VirtualDisk {
        VirtualDisk {
            id: "1-2000".to_owned(),
            key: 2000,
            file: "[a] vm/d-000002.vmdk".to_owned(),
            capacity: Some(capacity),
            change_id: change_id.map(|id| ChangeId::parse(id).unwrap()),
        }
    }

    #[test]
    fn a_disk_is_found_by_any_of_its_files() {
        let devices = element(
            "<val><VirtualDevice><key>1</key></VirtualDevice>\
             <VirtualDevice><key>2000</key><backing><fileName>[a] vm/d-000002.vmdk</fileName>\
             <parent><fileName>[a] vm/d-000001.vmdk</fileName><parent><fileName>[a] vm/d.vmdk</fileName></parent></parent>\
             <changeId>52 de-61 d5/8</changeId></backing>\
             <capacityInKB>1024</capacityInKB><capacityInBytes>1048576</capacityInBytes><diskObjectId>1-2000</diskObjectId></VirtualDevice></val>",
        );
        let expected = disk(Some("52 de-61 d5/8"), 1 << 20);
        for file in ["[a] vm/d.vmdk", "[a] vm/d-000001.vmdk", "[a] vm/d-000002.vmdk"] {
            assert_eq!(disk_with(&devices, file).as_ref(), Some(&expected), "{file}");
        }
        assert_eq!(disk_with(&devices, "[a] vm/e.vmdk"), None);
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
        assert_eq!(simulated.later_than(&simulated, "b", "a").unwrap(), EarlierState::Same);
        assert!(tracked.check_size(&disk(None, 512)).is_ok());
        assert!(tracked.check_size(&disk(None, 1024)).is_err());
    }

    #[test]
    fn snapshots_are_listed_with_their_children() {
        let info = element(
            "<val><rootSnapshotList><snapshot>snapshot-1</snapshot><name>a</name>\
             <childSnapshotList><snapshot>snapshot-2</snapshot><name>b</name></childSnapshotList>\
             </rootSnapshotList></val>",
        );
        let snapshots = list_snapshots(&info).unwrap();
        let names: Vec<_> =
            snapshots.iter().map(|(name, object)| (&**name, &*object.name)).collect();
        assert_eq!(names, [("a", "snapshot-1"), ("b", "snapshot-2")]);
    }
}
