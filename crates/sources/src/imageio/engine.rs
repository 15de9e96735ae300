//! Disks, as the engine knows them.

use datapath::error::SourceError;
use http::Method;

use super::session::{OvirtSession, path_segment};
use crate::checkpoints::Checkpoints;
use crate::error::invalid_error;
use crate::xml::XmlElement;

/// Storage domains of one disk: that of a template may have copies in several.
const MAX_DOMAINS: usize = 64;

/// The subject of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransferSubject {
    /// The disk as it is now.
    Disk(String),
    /// The content of a snapshot of it.
    Snapshot(String),
}

impl OvirtSession {
    /// The subject of an import with these checkpoints.
    pub(super) async fn find_subject(
        &self,
        disk_id: &str,
        checkpoints: &Checkpoints,
    ) -> Result<TransferSubject, SourceError> {
        match &checkpoints.current {
            Some(snapshot) => self.snapshot_of(disk_id, snapshot).await,
            None => {
                self.get_disk(disk_id).await?;
                Ok(TransferSubject::Disk(disk_id.to_owned()))
            }
        }
    }

    /// The disk, which has a size.
    async fn get_disk(&self, id: &str) -> Result<XmlElement, SourceError> {
        let path = format!("disks/{}", path_segment(id)?);
        let disk = self.call_api(Method::GET, &path, None).await?;
        let size = disk.text_of("total_size").and_then(|text| text.parse::<u64>().ok());
        match size {
            Some(_) => Ok(disk),
            None => Err(invalid_error(format!("the engine tells no total_size of disk {id}"))),
        }
    }

    /// The snapshot `snapshot` of a disk. The newest state is no snapshot of its own: it is the disk's active image.
    async fn snapshot_of(&self, disk_id: &str, snapshot: &str) -> Result<TransferSubject, SourceError> {
        let disk = self.get_disk(disk_id).await?;
        let domains = disk.child("storage_domains");
        let domains: Vec<&str> = domains
            .iter()
            .flat_map(|domains| domains.children_named("storage_domain"))
            .filter_map(|domain| domain.id.as_deref())
            .collect();
        // Each is a question whose answer may take minutes: ten thousand of them would not end.
        if domains.len() > MAX_DOMAINS {
            return Err(invalid_error(format!(
                "the engine says that disk {disk_id} lies in {} storage domains, more than {MAX_DOMAINS} make no sense",
                domains.len()
            )));
        }
        for domain in domains {
            let path = format!("storagedomains/{}/disksnapshots", path_segment(domain)?);
            let snapshots = self.call_api(Method::GET, &path, None).await?;
            if snapshots.children_named("disk_snapshot").any(|found| found.id.as_deref() == Some(snapshot)) {
                return Ok(TransferSubject::Snapshot(snapshot.to_owned()));
            }
        }
        if disk.text_of("image_id") == Some(snapshot) {
            return Ok(TransferSubject::Disk(disk_id.to_owned()));
        }
        Err(invalid_error(format!("disk {disk_id} has no snapshot {snapshot}")))
    }
}
