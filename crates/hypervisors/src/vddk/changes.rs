//! Asks vSphere's changed block tracking for the areas of a disk that changed.

use std::sync::Arc;

use fetch::Network;
use fetch::error::invalid_error;
use fetch::retry::with_lookup_limit;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::answer::{VsphereCallError, VsphereFault};
use super::areas::{ChangedAreas, impossible_error};
use super::change_id::{BEGIN_ANEW, ChangeId};
use super::disk::LocatedDisk;
use super::soap::VsphereSession;
use crate::nfc::UsedAreas;
use crate::xml::{XmlElement, escape_text};

/// Maximum number of responses for one disk. Each lists about 2,000 areas of at least 64 KiB, so
/// together they describe at least 8 TiB.
const MAX_PAGES: usize = 1 << 16;

/// Queries page by page what changed on the disk `found` since the state `since`. The size of the
/// disk is `disk_bytes`.
pub(super) async fn query_changes(
    session: &mut VsphereSession,
    found: &LocatedDisk,
    since: &ChangeId,
    disk_bytes: u64,
) -> Result<ChangedRanges, SourceError> {
    let mut areas = ChangedAreas::default();
    let mut offset = 0;
    for _ in 0..MAX_PAGES {
        if offset >= disk_bytes {
            break;
        }
        let page = query_page(session, found, since, offset).await?;
        offset = areas.add_page(&page, offset, disk_bytes)?;
    }
    if offset < disk_bytes {
        return Err(impossible_error(format!("more than {MAX_PAGES} answers")));
    }
    areas.into_changes(disk_bytes)
}

/// Asks for the used areas of the disk `found`, which its host does not list. `None` if vSphere
/// does not list them either.
pub(super) async fn list_used_areas(
    endpoint: &Url,
    found: &LocatedDisk,
    network: &Arc<Network>,
) -> Option<UsedAreas> {
    let capacity = found.disk.capacity.filter(|_| found.disk.change_id.is_some());
    let asking = async {
        let capacity = capacity.ok_or_else(|| invalid_error("changes are not tracked"))?;
        let mut session = VsphereSession::open(endpoint, network).await?;
        let empty = ChangeId::empty();
        let listed = with_lookup_limit(query_changes(&mut session, found, &empty, capacity)).await;
        session.close().await;
        listed
    };
    match asking.await {
        Ok(used) => {
            tracing::info!("vSphere lists {} used bytes", used.changed_bytes());
            Some(Arc::clone(used.ranges()))
        }
        Err(error) => {
            tracing::info!("vSphere does not list the used areas: {error}");
            None
        }
    }
}

async fn query_page(
    session: &mut VsphereSession,
    found: &LocatedDisk,
    since: &ChangeId,
    offset: u64,
) -> Result<XmlElement, SourceError> {
    let snapshot = found.snapshot.as_ref().map(|snapshot| snapshot.to_xml("snapshot"));
    let arguments = format!(
        "{}<deviceKey>{}</deviceKey><startOffset>{offset}</startOffset><changeId>{}</changeId>",
        snapshot.unwrap_or_default(),
        found.disk.key,
        escape_text(&since.to_string())
    );
    let answer = session.call_method(&found.machine, "QueryChangedDiskAreas", &arguments).await;
    answer.map_err(|failed| match failed {
        VsphereCallError::Fault(fault) => explain_fault(fault, since),
        VsphereCallError::Lost(error) => error,
    })
}

/// Adds fitting advice to a fault.
fn explain_fault(fault: VsphereFault, since: &ChangeId) -> SourceError {
    let advice = match fault.kind.as_str() {
        "ManagedObjectNotFound" => {
            "the snapshot was removed in the meantime: start this stage again with another one"
                .to_owned()
        }
        "NoPermission" => {
            "the user needs the privilege VirtualMachine.Config.ChangeTracking".to_owned()
        }
        // The other faults are mostly `FileFault` and `InvalidArgument`: tracking is off, or does
        // not reach back to that state.
        _ => format!("it cannot tell what changed since {since}: {BEGIN_ANEW}"),
    };
    SourceError::with_context(SourceErrorKind::Invalid, advice, fault)
}
