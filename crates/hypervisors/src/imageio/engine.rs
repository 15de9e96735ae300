//! Disks and snapshots in the oVirt engine.

use fetch::error::invalid_error;
use http::Method;
use stream::error::{SourceError, SourceErrorKind};

use super::session::{OvirtSession, path_segment};
use crate::checkpoints::Checkpoints;
use crate::xml::XmlElement;

/// Maximum number of storage domains of one disk. A template's disk may have copies in several.
const MAX_DOMAINS: usize = 64;

/// The subject of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TransferSubject {
    /// The name of its XML element: `image` for the current state of a disk, or `snapshot`.
    pub(super) element: &'static str,
    pub(super) id: String,
}

impl OvirtSession {
    /// Finds the subject of an import with these checkpoints.
    pub(super) async fn find_subject(
        &self,
        disk_id: &str,
        checkpoints: &Checkpoints,
    ) -> Result<TransferSubject, SourceError> {
        let disk = self.get_disk(disk_id).await?;
        match &checkpoints.current {
            Some(snapshot) => self.snapshot_of(&disk, disk_id, snapshot).await,
            None => Ok(TransferSubject { element: "image", id: disk_id.to_owned() }),
        }
    }

    /// Fetches the description of a disk. Fails if it does not state a size.
    async fn get_disk(&self, id: &str) -> Result<XmlElement, SourceError> {
        let path = format!("disks/{}", path_segment(id)?);
        let disk = self.call_api(Method::GET, &path, None).await.map_err(|error| {
            match error.kind() {
                // The engine itself says "Operation Failed: [Entity not found]".
                SourceErrorKind::Status(404) => {
                    let what = format!("the engine has no disk {id}");
                    SourceError::with_context(error.kind(), what, error)
                }
                _ => error,
            }
        })?;
        let size = disk.value_of::<u64>("total_size");
        match size {
            Some(_) => Ok(disk),
            None => Err(invalid_error(format!("the engine reports no total_size for disk {id}"))),
        }
    }

    /// Finds the snapshot `snapshot` of a disk. The newest state is not a separate snapshot: it is
    /// the active image of the disk.
    async fn snapshot_of(
        &self,
        disk: &XmlElement,
        disk_id: &str,
        snapshot: &str,
    ) -> Result<TransferSubject, SourceError> {
        let domains = disk.child("storage_domains");
        let domains: Vec<&str> = domains
            .iter()
            .flat_map(|domains| domains.children_named("storage_domain"))
            .filter_map(|domain| domain.id.as_deref())
            .collect();
        // Each domain needs a request whose response may take minutes, so ten thousand domains
        // would practically never end.
        if domains.len() > MAX_DOMAINS {
            return Err(invalid_error(format!(
                "the engine reports disk {disk_id} in {} storage domains, the limit is {MAX_DOMAINS}",
                domains.len()
            )));
        }
        for domain in domains {
            let path = format!("storagedomains/{}/disksnapshots", path_segment(domain)?);
            let snapshots = self.call_api(Method::GET, &path, None).await?;
            if snapshots
                .children_named("disk_snapshot")
                .any(|found| found.id.as_deref() == Some(snapshot))
            {
                return Ok(TransferSubject { element: "snapshot", id: snapshot.to_owned() });
            }
        }
        if disk.text_of("image_id") == Some(snapshot) {
            return Ok(TransferSubject { element: "image", id: disk_id.to_owned() });
        }
        Err(invalid_error(format!("disk {disk_id} has no snapshot {snapshot}")))
    }
}
