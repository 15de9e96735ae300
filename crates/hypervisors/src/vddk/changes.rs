//! Asks vSphere's changed block tracking for the areas of a disk that changed.

use std::sync::Arc;

use fetch::Network;
use fetch::error::invalid_error;
use fetch::retry::{with_lookup_limit, within};
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::answer::VsphereFault;
use super::areas::{ChangedAreas, impossible_error};
use super::change_id::{BEGIN_ANEW, ChangeId};
use super::disk::LocatedDisk;
use super::options::VddkOptions;
use super::soap::VsphereSession;
use crate::nfc::UsedAreas;
use crate::xml::escape_text;

/// Maximum number of responses for one disk. Each lists about 2,000 areas of at least 64 KiB, so
/// together they describe at least 8 TiB.
const MAX_PAGES: usize = 1 << 16;

/// Asks what changed on the disk `found` since the earlier state; `None` if none was requested.
pub(super) async fn find_changes(
    session: &mut VsphereSession,
    found: &LocatedDisk,
    options: &VddkOptions,
    network: &Network,
) -> Result<Option<ChangedRanges>, SourceError> {
    let since = match &found.since {
        Some(since) => since,
        None if options.checkpoints.previous.is_none() => return Ok(None),
        // CDI's own tests import from VMware's simulator in stages, with a plugin for tests.
        // Everywhere else a simulator is rejected.
        None if options.access.is_for_tests() => return Ok(ChangedRanges::new(0, [])),
        None => {
            return Err(invalid_error(format!(
                "vSphere reports neither the size of the disk {} nor its changes: {BEGIN_ANEW}",
                found.disk.file
            )));
        }
    };
    // This query transfers no data, so it is limited like any period without progress.
    let limit = network.retry_policy.no_progress_limit;
    let missing = format_args!("vSphere did not report what changed since {since}");
    let changes = within(limit, missing, query_changes(session, found, since)).await?;
    tracing::info!(
        "{} bytes of {} changed since {since}, in {} areas",
        changes.changed_bytes(),
        changes.disk_bytes(),
        changes.ranges().len()
    );
    Ok(Some(changes))
}

/// Queries page by page what changed on the disk `found` since the state `since`.
async fn query_changes(
    session: &mut VsphereSession,
    found: &LocatedDisk,
    since: &ChangeId,
) -> Result<ChangedRanges, SourceError> {
    let LocatedDisk { machine, snapshot, disk, .. } = found;
    let disk_bytes = disk.capacity.ok_or_else(|| {
        invalid_error(format!("vSphere does not report the size of the disk {}", disk.file))
    })?;
    let snapshot = snapshot.as_ref().map_or_else(String::new, |object| object.to_xml("snapshot"));
    let (mut areas, mut offset) = (ChangedAreas::default(), 0);
    for _ in 0..MAX_PAGES {
        let arguments = format!(
            "{snapshot}<deviceKey>{}</deviceKey><startOffset>{offset}</startOffset><changeId>{}</changeId>",
            disk.key,
            escape_text(&since.to_string())
        );
        let page = session.call_method(machine, "QueryChangedDiskAreas", &arguments).await;
        let page = page.map_err(|error| explain_failure(error, since))?;
        offset = areas.add_page(&page, offset, disk_bytes)?;
        if offset >= disk_bytes {
            return areas.into_changes(disk_bytes);
        }
    }
    Err(impossible_error(format!("more than {MAX_PAGES} answers")))
}

/// Asks for the used areas of the disk `found`, which its host does not list. `None` if vSphere
/// does not list them either.
pub(super) async fn list_used_areas(
    endpoint: &Url,
    found: &LocatedDisk,
    network: &Arc<Network>,
) -> Option<UsedAreas> {
    let asking = VsphereSession::run(endpoint, network, async |session| {
        with_lookup_limit(query_changes(session, found, &ChangeId::empty())).await
    });
    let listed = match &found.disk.change_id {
        Some(_) => asking.await,
        None => Err(invalid_error("changes are not tracked")),
    };
    match &listed {
        Ok(used) => tracing::info!("vSphere lists {} used bytes", used.changed_bytes()),
        Err(error) => tracing::info!("vSphere does not list the used areas: {error}"),
    }
    listed.ok().map(|used| Arc::clone(used.ranges()))
}

/// Adds fitting advice to a fault.
fn explain_failure(error: SourceError, since: &ChangeId) -> SourceError {
    let Some(fault) = VsphereFault::of(&error) else { return error };
    let advice = match fault.kind.as_str() {
        "ManagedObjectNotFound" => {
            "the snapshot was removed in the meantime: start this stage again with another one"
                .to_owned()
        }
        "NoPermission" => {
            "the user needs the privilege VirtualMachine.Provisioning.DiskRandomRead".to_owned()
        }
        // The other faults are mostly `FileFault` and `InvalidArgument`: tracking is off, or does
        // not reach back to that state.
        _ => format!("it cannot tell what changed since {since}: {BEGIN_ANEW}"),
    };
    SourceError::with_context(SourceErrorKind::Invalid, advice, error)
}
