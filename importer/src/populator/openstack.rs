//! `openstack-populator`: imports an image from an OpenStack cloud.

use program::env::EnvReader;
use program::flags::{KlogFlags, OwnFlag};
use program::metrics::OPENSTACK_PROGRESS;
use sources::SourceLocation;
use stores::glance::{GlanceAccess, GlanceOptions, NameStyle};

use super::Populator;
use super::origin::{INSECURE, PopulatorSource};

const ENDPOINT: &str = "endpoint";
const IMAGE_ID: &str = "image-id";

pub(super) const POPULATOR: Populator = Populator {
    program_name: "openstack-populator",
    own_flags: &FLAGS,
    progress_metric: OPENSTACK_PROGRESS,
    read_source,
};

const FLAGS: [OwnFlag; 2] = [
    OwnFlag { name: ENDPOINT, purpose: "(mandatory) the identity service: https://HOST:5000/v3" },
    OwnFlag { name: IMAGE_ID, purpose: "(mandatory) the image's id" },
];

fn read_source(
    flags: &KlogFlags,
    _size: Option<u64>,
    reader: &mut EnvReader<'_>,
) -> Result<Option<PopulatorSource>, String> {
    let [endpoint, image_id] =
        flags.required_values([ENDPOINT, IMAGE_ID]).map_err(|error| error.to_string())?;
    let Some(access) = GlanceAccess::from_env(reader, NameStyle::Secret) else {
        return Ok(None);
    };
    let options =
        GlanceOptions::new(&endpoint, &image_id, access).map_err(|error| error.to_string())?;
    Ok(Some(PopulatorSource {
        place: SourceLocation::Glance(options),
        credentials: None,
        // As in upstream, a value that is not a boolean counts as false.
        insecure: reader.lenient_bool(INSECURE),
    }))
}
