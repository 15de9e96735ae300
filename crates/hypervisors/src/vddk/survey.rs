//! Lists of the machines and disks of a vSphere, and the ways to a disk that work from here.

use std::sync::Arc;

use fetch::Network;
use fetch::retry::with_lookup_limit;
use program::env::{NamedStrings, ProcessEnv};
use serde::Serialize;
use stream::error::SourceError;

use super::answer::ManagedObjectReference;
use super::changes::list_used_areas;
use super::disk::{
    DEVICES, LocatedDisk, SnapshotEntry, VirtualDisk, find_snapshot, list_disks, list_snapshots,
};
use super::inventory::{MachineEntry, find_machine, list_machines};
use super::nbdkit::NBDKIT;
use super::options::{VddkInstallation, VddkOptions};
use super::soap::VsphereSession;
use crate::nfc::{SurveyStep, TicketDesk, library_version, try_steps};

/// A server or a machine, which an address without a disk names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VmwareSurvey {
    /// The machines of a server.
    Machines(Vec<MachineEntry>),
    /// One machine.
    Machine(Box<MachineSurvey>),
}

/// A machine.
#[derive(Debug, Serialize)]
pub struct MachineSurvey {
    /// The object, such as `vm-42`.
    pub id: String,
    /// The name, as vSphere stores it.
    pub name: String,
    /// True if changes of its disks are tracked. `None` if vSphere does not say.
    pub change_tracking: Option<bool>,
    /// The disks.
    pub disks: Vec<VirtualDisk>,
    /// The snapshots.
    pub snapshots: Vec<SnapshotEntry>,
    /// The steps to the first disk, and whether they work.
    pub steps: Vec<SurveyStep>,
}

impl VmwareSurvey {
    /// Asks the server of `options` for its machines or for one of them, which is then reached by
    /// each transport. Blocks, so it must not be called inside an asynchronous task.
    pub fn of_server(options: &VddkOptions, network: &Arc<Network>) -> Result<Self, SourceError> {
        let network = options.access.verified_network(network)?;
        let asking = VsphereSession::run(&options.endpoint, &network, async |session| {
            with_lookup_limit(ask_server(session, options)).await
        });
        let (mut survey, disk) = network.block_on(asking)?;
        if let (Self::Machine(survey), Some(found)) = (&mut survey, disk) {
            let desk = TicketDesk::open(options, &found.machine, &network);
            let listing = list_used_areas(&options.endpoint, &found, &network);
            let (file, capacity) = (&found.disk.file, found.disk.capacity);
            survey.steps.extend(try_steps(Arc::clone(&desk.0), file, capacity, listing)?);
        }
        Ok(survey)
    }
}

async fn ask_server(
    session: &mut VsphereSession,
    options: &VddkOptions,
) -> Result<(VmwareSurvey, Option<LocatedDisk>), SourceError> {
    if options.machine.is_empty() {
        return Ok((VmwareSurvey::Machines(list_machines(session).await?), None));
    }
    let machine = find_machine(session, options).await?;
    let paths = [DEVICES, "snapshot", "name", "config.changeTrackingEnabled", "runtime.host"];
    let properties = session.read_properties(&machine, &paths).await?;
    let (disks, snapshots) = (list_disks(&properties, ""), list_snapshots(&properties));
    let located =
        |disk, snapshot| LocatedDisk { machine: machine.clone(), snapshot, disk, since: None };
    let tried = match (disks.first(), &options.checkpoints.current) {
        (Some(disk), Some(wanted)) => {
            let snapshot = find_snapshot(&snapshots, wanted, &options.machine)?;
            let disk = disk.at_snapshot(session, &snapshot, wanted).await?;
            Some(located(disk, Some(snapshot)))
        }
        (first, _) => first.map(|disk| located(disk.clone(), None)),
    };
    let host = properties.text_of("runtime.host");
    let host =
        host.map(|host| ManagedObjectReference::from_name("HostSystem", host)).transpose()?;
    let (works, version) = match library_version(session, host.as_ref()).await {
        Ok(Some(version)) => (true, format!("version {version}: 11 is ESXi 8, 7 is ESXi 7.0")),
        Ok(None) => (true, "the host does not tell it, it may be older than ESXi 6.5".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    let step = |step, works, result| SurveyStep { step, works, result };
    let (is_installed, library) = find_library(&options.access.installation);
    let survey = MachineSurvey {
        id: machine.name,
        name: properties.text_of("name").unwrap_or_default().to_owned(),
        change_tracking: properties.value_of("config.changeTrackingEnabled"),
        disks,
        snapshots,
        steps: vec![step("vddk", is_installed, library), step("nfc", works, version)],
    };
    Ok((VmwareSurvey::Machine(Box::new(survey)), tried))
}

/// Returns whether VMware's library and nbdkit are installed, also as a sentence.
fn find_library(installation: &VddkInstallation) -> (bool, String) {
    let folder = installation.objects_path();
    let path = ProcessEnv.get("PATH").unwrap_or_default();
    let has_program = std::env::split_paths(&path).any(|folder| folder.join(NBDKIT).is_file());
    let (has_library, folder) = (folder.is_dir(), folder.display());
    let is = |there: bool| if there { "is" } else { "is not" };
    let (library, program) = (is(has_library), is(has_program));
    let text = format!("VMware's library {library} in {folder}, {NBDKIT} {program} in PATH");
    (has_library && has_program, text)
}
