//! `ovirt-populator`: a disk of an oVirt engine.

use program::env::{EnvReader, go_bool};
use program::flags::{Flags, OwnFlag};
use program::secret::Secret;
use sources::imageio::api_of_engine;
use sources::{Checkpoints, Credentials, Place};

use super::origin::{INSECURE, Origin};

const ENGINE_URL: &str = "engine-url";
const DISK_ID: &str = "disk-id";

/// `admin@internal`, or the like.
const USER: &str = "user";
const PASSWORD: &str = "password";

pub(super) const FLAGS: [OwnFlag; 4] = [
    OwnFlag {
        name: ENGINE_URL,
        purpose: "(mandatory) https://ENGINE, with or without /ovirt-engine/api",
    },
    OwnFlag {
        name: DISK_ID,
        purpose: "(mandatory) the disk's id",
    },
    OwnFlag {
        name: "cr-name",
        purpose: "accepted, no effect",
    },
    OwnFlag {
        name: "cr-namespace",
        purpose: "accepted, no effect",
    },
];

/// `None` when a key of the secret was rejected.
pub(super) fn read(flags: &Flags, reader: &mut EnvReader<'_>) -> Result<Option<Origin>, String> {
    let [engine, disk_id] = flags
        .mandatory([ENGINE_URL, DISK_ID])
        .map_err(|error| error.to_string())?;
    let user = reader.text(USER).unwrap_or_default();
    let password = reader.secret(PASSWORD);
    Ok(Some(Origin {
        place: Place::ImageIo {
            api: api_of_engine(&engine).map_err(|error| error.to_string())?,
            disk_id,
            checkpoints: Checkpoints::default(),
        },
        credentials: Credentials::new(&user, password.as_ref().map_or("", Secret::expose)),
        insecure: reader.parsed(INSECURE, go_bool).unwrap_or(false),
    }))
}
