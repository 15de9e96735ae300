//! `openstack-populator`: an image of an OpenStack cloud.

use program::env::EnvReader;
use program::flags::{Flags, OwnFlag};
use sources::Place;
use sources::glance::{Access, GlanceOptions, Names};

use super::origin::{INSECURE, Origin};

const ENDPOINT: &str = "endpoint";
const IMAGE_ID: &str = "image-id";

pub(super) const FLAGS: [OwnFlag; 2] = [
    OwnFlag {
        name: ENDPOINT,
        purpose: "(mandatory) the identity service: https://HOST:5000/v3",
    },
    OwnFlag {
        name: IMAGE_ID,
        purpose: "(mandatory) the image's id",
    },
];

/// `None` when a key of the secret was rejected.
pub(super) fn read(flags: &Flags, reader: &mut EnvReader<'_>) -> Result<Option<Origin>, String> {
    let [endpoint, image_id] = flags
        .mandatory([ENDPOINT, IMAGE_ID])
        .map_err(|error| error.to_string())?;
    let Some(access) = Access::read(reader, Names::Secret) else {
        return Ok(None);
    };
    let options = GlanceOptions::new(&endpoint, &image_id, access).map_err(|error| error.to_string())?;
    Ok(Some(Origin {
        place: Place::Glance(options),
        credentials: None,
        // As upstream: what is no boolean is false.
        insecure: reader.lenient_bool(INSECURE),
    }))
}
