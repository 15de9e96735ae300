//! Disks, as the engine knows them.

use datapath::error::SourceError;
use http::Method;

use super::session::{Session, segment};
use crate::checkpoints::Checkpoints;
use crate::error::invalid;
use crate::xml::Element;

/// Storage domains of one disk: that of a template may have copies in several.
const MAX_DOMAINS: usize = 64;

/// The subject of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The disk as it is now.
    Disk(String),
    /// The content of a snapshot of it.
    Snapshot(String),
}

impl Session {
    /// The subject of an import with these checkpoints.
    pub(super) async fn find(
        &self,
        disk_id: &str,
        checkpoints: &Checkpoints,
    ) -> Result<Subject, SourceError> {
        match &checkpoints.current {
            Some(snapshot) => self.snapshot_of(disk_id, snapshot).await,
            None => {
                self.disk(disk_id).await?;
                Ok(Subject::Disk(disk_id.to_owned()))
            }
        }
    }

    /// The disk, which has a size.
    async fn disk(&self, id: &str) -> Result<Element, SourceError> {
        let path = format!("disks/{}", segment(id)?);
        let disk = self.call(Method::GET, &path, None).await?;
        let size = disk
            .text_of("total_size")
            .and_then(|text| text.parse::<u64>().ok());
        match size {
            Some(_) => Ok(disk),
            None => Err(invalid(format!("the engine tells no total_size of disk {id}"))),
        }
    }

    /// The snapshot `snapshot` of a disk. The newest state is no snapshot of its own: it is the disk's active image.
    async fn snapshot_of(&self, disk_id: &str, snapshot: &str) -> Result<Subject, SourceError> {
        let disk = self.disk(disk_id).await?;
        let domains = disk.child("storage_domains");
        let domains: Vec<&str> = domains
            .iter()
            .flat_map(|domains| domains.children("storage_domain"))
            .filter_map(|domain| domain.id.as_deref())
            .collect();
        // Each is a question whose answer may take minutes: ten thousand of them would not end.
        if domains.len() > MAX_DOMAINS {
            return Err(invalid(format!(
                "the engine says that disk {disk_id} lies in {} storage domains, more than {MAX_DOMAINS} make no sense",
                domains.len()
            )));
        }
        for domain in domains {
            let path = format!("storagedomains/{}/disksnapshots", segment(domain)?);
            let snapshots = self.call(Method::GET, &path, None).await?;
            if snapshots
                .children("disk_snapshot")
                .any(|found| found.id.as_deref() == Some(snapshot))
            {
                return Ok(Subject::Snapshot(snapshot.to_owned()));
            }
        }
        if disk.text_of("image_id") == Some(snapshot) {
            return Ok(Subject::Disk(disk_id.to_owned()));
        }
        Err(invalid(format!("disk {disk_id} has no snapshot {snapshot}")))
    }
}
