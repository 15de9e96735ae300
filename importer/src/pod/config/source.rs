//! The source of the disk: the variables of each kind.

use std::path::PathBuf;

use datapath::digest::Checksum;
use program::env::{EnvReader, Strings};
use program::paths::Paths;
use sources::http::parse_header;
use sources::objects::ObjectOptions;
use sources::place::STORES;
use sources::pod::{CERT_DIR, PodNetwork};
use sources::registry::RegistryOptions;
use sources::vddk::{Installation, VddkOptions};
use sources::{Checkpoints, Place};
use url::Url;
use volume::wording::Made;

use super::{IMAGE_SIZE, SOURCE_VARIABLE};

/// URL of the object.
pub(super) const ENDPOINT: &str = "IMPORTER_ENDPOINT";
/// `kubevirt` (a disk image) or `archive` (a tar).
pub(super) const CONTENT_TYPE: &str = "IMPORTER_CONTENTTYPE";
/// Any name with this prefix holds one `Name: value`.
pub(super) const EXTRA_HEADER: &str = "IMPORTER_EXTRA_HEADER_";
/// `algorithm:hex` of the whole object.
pub(super) const CHECKSUM: &str = "IMPORTER_CHECKSUM";
/// `node`: a side container with the user's image serves the disk.
pub(super) const PULL_METHOD: &str = "IMPORTER_PULL_METHOD";
/// The key file of a service account.
const GOOGLE_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Path at which CDI mounts the key file of a DataVolume.
const GOOGLE_SECRET: &str = "/google/credentials.json";
/// The platform of a multi-arch image, as Go spells it.
const ARCHITECTURE: &str = "IMPORTER_REGISTRY_IMAGE_ARCHITECTURE";
/// The disk of an oVirt engine.
pub(super) const DISK_ID: &str = "IMPORTER_DISK_ID";
/// The uuid of a VMware machine, the file of its disk, and the thumbprint of the server's certificate.
const UUID: &str = "IMPORTER_UUID";
const BACKING_FILE: &str = "IMPORTER_BACKING_FILE";
const THUMBPRINT: &str = "IMPORTER_THUMBPRINT";
/// The snapshot that is copied.
const CURRENT_CHECKPOINT: &str = "IMPORTER_CURRENT_CHECKPOINT";
/// The snapshot that the target already holds: what is copied is the difference.
pub(super) const PREVIOUS_CHECKPOINT: &str = "IMPORTER_PREVIOUS_CHECKPOINT";

/// The source of the disk.
#[derive(Debug)]
pub(crate) enum SourceConfig {
    /// A blank disk.
    Blank,
    /// An object on a network.
    Remote(Box<Remote>),
}

/// An object on a network, and what it becomes.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) network: PodNetwork,
    pub(crate) place: Place,
    /// A side container with the user's image serves the disk.
    pub(crate) is_node_pull: bool,
    pub(crate) made: Made,
    /// Digest of the whole object.
    pub(crate) checksum: Option<Checksum>,
}

impl Remote {
    /// True where upstream looks at a header of 512 bytes (contract §1.9). Of a container image it does that with the layer, and not
    /// with the disk in it.
    pub(crate) fn needs_full_header(&self) -> bool {
        !matches!(self.place, Place::Registry { .. })
    }

    /// Snapshot that the target must hold for the difference to it to make sense.
    pub(crate) fn base(&self) -> Option<&str> {
        base(&self.place)
    }
}

fn base(place: &Place) -> Option<&str> {
    match place {
        Place::ImageIo { checkpoints, .. } | Place::Vddk(VddkOptions { checkpoints, .. }) => {
            checkpoints.base()
        }
        _ => None,
    }
}

fn read_checkpoints(reader: &EnvReader<'_>) -> Checkpoints {
    Checkpoints {
        current: reader.text(CURRENT_CHECKPOINT),
        previous: reader.text(PREVIOUS_CHECKPOINT),
    }
}

impl SourceConfig {
    /// `None` when something was rejected.
    pub(super) fn read(reader: &mut EnvReader<'_>, env: &dyn Strings) -> Option<Self> {
        let kind = reader.text(SOURCE_VARIABLE).unwrap_or_default();
        // CDI's API treats a missing content type as a disk image.
        let content = reader.text(CONTENT_TYPE).unwrap_or_else(|| "kubevirt".to_owned());
        if kind == "none" {
            return read_blank(reader, &content);
        }
        let made = read_made(reader, &kind, &content)?;
        // All three look at their variables, whatever the others found.
        let place = read_place(reader, env, &kind);
        let checksum = read_checksum(reader);
        let network = PodNetwork::read(reader, env);
        let (place, network) = (place?, network?);
        let is_node_pull =
            matches!(place, Place::Http { .. }) && reader.text(PULL_METHOD).as_deref() == Some("node");
        Some(Self::Remote(Box::new(Remote {
            // A container of the same pod is asked directly: upstream verifies nothing there.
            checksum: checksum.filter(|_| !is_node_pull),
            network,
            made: match base(&place) {
                Some(_) if matches!(place, Place::Vddk(_)) => Made::Changes,
                Some(_) => Made::Delta,
                None => made,
            },
            place,
            is_node_pull,
        })))
    }
}

fn read_blank(reader: &mut EnvReader<'_>, content: &str) -> Option<SourceConfig> {
    if content == "archive" {
        reader.reject(CONTENT_TYPE, "Cannot create empty disk with content type archive");
        return None;
    }
    if reader.text(IMAGE_SIZE).is_none() {
        reader.reject(
            IMAGE_SIZE,
            "is not set or empty, and a blank disk has no other size",
        );
    }
    Some(SourceConfig::Blank)
}

fn read_made(reader: &mut EnvReader<'_>, kind: &str, content: &str) -> Option<Made> {
    // A store may hold what any HTTP server may.
    let is_store = STORES.iter().any(|store| store.name == kind);
    let (variable, reason) = match (if is_store { "http" } else { kind }, content) {
        ("http" | "registry" | "imageio" | "vddk", "kubevirt") => return Some(Made::Disk),
        ("http", "archive") => return Some(Made::Directory),
        ("registry" | "imageio", content) => (
            CONTENT_TYPE,
            format!("Unsupported content type {content} when importing from {kind}"),
        ),
        ("http" | "vddk", other) => (
            CONTENT_TYPE,
            format!("Unable to process data: Unknown content type: {other}"),
        ),
        (other, _) => (SOURCE_VARIABLE, format!("Unknown data source: {other}")),
    };
    reader.reject(variable, reason);
    None
}

fn read_place(reader: &mut EnvReader<'_>, env: &dyn Strings, kind: &str) -> Option<Place> {
    match kind {
        "http" => read_http(reader),
        "registry" => Some(Place::Registry {
            reference: endpoint(reader)?,
            options: RegistryOptions {
                architecture: reader.text(ARCHITECTURE),
            },
        }),
        "imageio" => {
            let (api, disk_id) = (http_endpoint(reader), required(reader, DISK_ID));
            Some(Place::ImageIo {
                api: api?,
                disk_id: disk_id?,
                checkpoints: read_checkpoints(reader),
            })
        }
        "vddk" => read_vddk(reader, &Paths::from_env(env)),
        _ => Some(Place::Object {
            store: STORES.iter().find(|store| store.name == kind)?,
            url: endpoint(reader)?,
            options: ObjectOptions {
                // Another file is not the DataVolume's: it was mounted into the pod, and is the policy's business.
                key_file: reader
                    .text(GOOGLE_CREDENTIALS)
                    .map(PathBuf::from)
                    .filter(|file| *file == Paths::from_env(env).at(GOOGLE_SECRET)),
                ..ObjectOptions::default()
            },
        }),
    }
}

fn read_vddk(reader: &mut EnvReader<'_>, paths: &Paths) -> Option<Place> {
    let endpoint = http_endpoint(reader);
    let (uuid, backing_file) = (required(reader, UUID), required(reader, BACKING_FILE));
    let checkpoints = read_checkpoints(reader);
    // Here, before the disk of the stages until now would make place for another one.
    if checkpoints.previous.is_some() && checkpoints.current.is_none() {
        reader.reject(PREVIOUS_CHECKPOINT, "previous checkpoint set without current");
        return None;
    }
    Some(Place::Vddk(VddkOptions {
        endpoint: endpoint?,
        uuid: uuid?,
        backing_file: backing_file?,
        thumbprint: reader.text(THUMBPRINT),
        checkpoints,
        has_certificates: reader.text(CERT_DIR).is_some(),
        installation: Installation::of_pod(|path| paths.at(path)),
    }))
}

fn required(reader: &mut EnvReader<'_>, name: &str) -> Option<String> {
    let text = reader.text(name);
    if text.is_none() {
        reader.reject(name, "is not set or empty");
    }
    text
}

fn read_http(reader: &mut EnvReader<'_>) -> Option<Place> {
    let endpoint = http_endpoint(reader);
    let mut headers = Vec::new();
    for (name, line) in reader.with_prefix(EXTRA_HEADER) {
        match parse_header(&line, false) {
            Ok(header) => headers.extend(header),
            Err(error) => reader.reject(&name, error.to_string()),
        }
    }
    Some(Place::Http {
        url: endpoint?,
        headers,
    })
}

fn read_checksum(reader: &mut EnvReader<'_>) -> Option<Checksum> {
    let checksum = reader.parsed(CHECKSUM, |text| {
        // Blanks are as good as nothing.
        if text.trim().is_empty() {
            Ok(None)
        } else {
            text.parse().map(Some)
        }
    });
    checksum.flatten()
}

fn endpoint(reader: &mut EnvReader<'_>) -> Option<String> {
    let text = reader.text(ENDPOINT);
    if text.is_none() {
        reader.reject(ENDPOINT, format!("endpoint \"{ENDPOINT}\" is missing or blank"));
    }
    text
}

fn http_endpoint(reader: &mut EnvReader<'_>) -> Option<Url> {
    let text = endpoint(reader)?;
    // The text is not repeated: it may hold a password.
    let problem = match Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Some(url),
        Ok(url) => format!("unsupported protocol scheme {:?}", url.scheme()),
        Err(error) => error.to_string(),
    };
    reader.reject(
        ENDPOINT,
        format!("unable to parse endpoint \"{ENDPOINT}\": {problem}"),
    );
    None
}
