//! Areas of a disk that changed, as vSphere's tracking of changed blocks knows them.

use datapath::changes::Changes;
use datapath::error::{SourceError, SourceErrorKind};

use super::answer::{CallFailed, Fault};
use super::areas::{Areas, impossible};
use super::change_id::{BEGIN_ANEW, ChangeId};
use super::disk::Found;
use super::soap::Session;
use crate::xml::{Element, escaped};

/// Answers that one disk may take. Each has some 2,000 areas of at least 64 KiB, so that these describe 8 TiB at the very least.
const MAX_PAGES: usize = 1 << 16;

/// Asks what changed on the disk that was `found`, page by page, since the state `since`; it has `disk_bytes` bytes.
pub(super) async fn query(
    session: &mut Session,
    found: &Found,
    since: &ChangeId,
    disk_bytes: u64,
) -> Result<Changes, SourceError> {
    let mut areas = Areas::default();
    let mut offset = 0;
    for _ in 0..MAX_PAGES {
        if offset >= disk_bytes {
            break;
        }
        let page = ask(session, found, since, offset).await?;
        offset = areas.add(&page, offset, disk_bytes)?;
    }
    if offset < disk_bytes {
        return Err(impossible(format!("more than {MAX_PAGES} answers")));
    }
    areas.changes(disk_bytes)
}

async fn ask(
    session: &mut Session,
    found: &Found,
    since: &ChangeId,
    offset: u64,
) -> Result<Element, SourceError> {
    let snapshot = found.snapshot.as_ref().map(|snapshot| snapshot.xml("snapshot"));
    let arguments = format!(
        "{}<deviceKey>{}</deviceKey><startOffset>{offset}</startOffset><changeId>{}</changeId>",
        snapshot.unwrap_or_default(),
        found.disk.key,
        escaped(&since.to_string())
    );
    let answer = session
        .call(&found.machine, "QueryChangedDiskAreas", &arguments)
        .await;
    match answer {
        Ok(response) => Ok(response.into_child("returnval").unwrap_or_default()),
        Err(CallFailed::Fault(fault)) => Err(explained(fault, since)),
        Err(CallFailed::Lost(error)) => Err(error),
    }
}

/// A refusal, with the advice that fits.
fn explained(fault: Fault, since: &ChangeId) -> SourceError {
    let advice = match fault.kind.as_str() {
        "ManagedObjectNotFound" => {
            "the snapshot was removed meanwhile: begin this stage again with another".to_owned()
        }
        "NoPermission" => "the user needs the privilege VirtualMachine.Config.ChangeTracking".to_owned(),
        // `FileFault` and `InvalidArgument` mostly: it is off, or does not reach back to that state.
        _ => format!("it cannot tell what changed since {since}: {BEGIN_ANEW}"),
    };
    SourceError::caused(SourceErrorKind::Invalid, advice, fault)
}
