//! `ovirt-populator`: imports a disk from an oVirt engine.

use fetch::BasicCredentials;
use hypervisors::Checkpoints;
use hypervisors::imageio::api_of_engine;
use program::env::{EnvReader, go_bool};
use program::flags::{KlogFlags, OwnFlag};
use program::metrics::OVIRT_PROGRESS;
use program::secret::Secret;
use sources::SourceLocation;

use super::Populator;
use super::config::PVC_SIZE;
use super::origin::{INSECURE, PopulatorSource};

const ENGINE_URL: &str = "engine-url";
const DISK_ID: &str = "disk-id";

/// The user name, such as `admin@internal`.
const USER: &str = "user";
const PASSWORD: &str = "password";

pub(super) const POPULATOR: Populator = Populator {
    program_name: "ovirt-populator",
    own_flags: &FLAGS,
    progress_metric: OVIRT_PROGRESS,
    read_source,
};

const FLAGS: [OwnFlag; 4] = [
    OwnFlag {
        name: ENGINE_URL,
        purpose: "(mandatory) https://ENGINE, with or without /ovirt-engine/api",
    },
    OwnFlag { name: DISK_ID, purpose: "(mandatory) the disk's id" },
    OwnFlag { name: "cr-name", purpose: "accepted, no effect" },
    OwnFlag { name: "cr-namespace", purpose: "accepted, no effect" },
];

fn read_source(
    flags: &KlogFlags,
    size: Option<u64>,
    reader: &mut EnvReader<'_>,
) -> Result<Option<PopulatorSource>, String> {
    size.ok_or_else(|| format!("-{PVC_SIZE} must be above 0"))?;
    let [engine, disk_id] =
        flags.required_values([ENGINE_URL, DISK_ID]).map_err(|error| error.to_string())?;
    let user = reader.read_text(USER).unwrap_or_default();
    let password = reader.read_secret(PASSWORD);
    Ok(Some(PopulatorSource {
        place: SourceLocation::ImageIo {
            api: api_of_engine(&engine).map_err(|error| error.to_string())?,
            disk_id,
            checkpoints: Checkpoints::default(),
        },
        credentials: BasicCredentials::new(&user, password.as_ref().map_or("", Secret::expose)),
        insecure: reader.read_parsed(INSECURE, go_bool).unwrap_or(false),
    }))
}
