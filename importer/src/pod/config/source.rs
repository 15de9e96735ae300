//! What fills the disk: the variables of each kind of source.

use std::path::PathBuf;

use daemon::env::{EnvReader, Strings};
use datapath::digest::Checksum;
use datapath::options::{Layers, Payload};
use url::Url;
use volume::wording::Made;

use super::access::AccessConfig;
use super::{IMAGE_SIZE, SOURCE_VARIABLE};
use sources::http::{Header, parse_header};
use sources::imageio::Checkpoints;

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
const PREVIOUS_CHECKPOINT: &str = "IMPORTER_PREVIOUS_CHECKPOINT";

/// What fills the disk.
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
    pub(crate) access: AccessConfig,
    pub(crate) kind: Kind,
    pub(crate) made: Made,
    /// What the whole object must digest to.
    pub(crate) checksum: Option<Checksum>,
}

/// One kind of source and what only it is told.
#[derive(Debug)]
pub(crate) enum Kind {
    Http {
        endpoint: Url,
        headers: Vec<Header>,
        is_node_pull: bool,
    },
    S3 {
        endpoint: String,
    },
    Gcs {
        endpoint: String,
        /// Of the DataVolume, or of the pod: its path tells.
        key_file: Option<PathBuf>,
    },
    Registry {
        reference: String,
        architecture: Option<String>,
    },
    ImageIo {
        endpoint: Url,
        disk_id: String,
        checkpoints: Checkpoints,
    },
    Vddk {
        endpoint: Url,
        uuid: String,
        backing_file: String,
        thumbprint: Option<String>,
        checkpoints: Checkpoints,
    },
}

impl Kind {
    /// What the controllers call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::S3 { .. } => "s3",
            Self::Gcs { .. } => "gcs",
            Self::Registry { .. } => "registry",
            Self::ImageIo { .. } => "imageio",
            Self::Vddk { .. } => "vddk",
        }
    }

    /// Compression and content: those that the bytes show, but for a disk that a guest wrote, which may begin like anything.
    pub(crate) fn payload(&self) -> (Layers, Payload) {
        match self {
            Self::Vddk { .. } => (Layers::None, Payload::RAW),
            _ => (Layers::Sniffed, Payload::default()),
        }
    }

    /// Whether upstream looks at a header of 512 bytes (contract §1.9). Of a container image it does that with the layer, and not with the
    /// disk in it.
    pub(crate) fn needs_full_header(&self) -> bool {
        !matches!(self, Self::Registry { .. } | Self::Vddk { .. })
    }

    /// What the target must hold for the difference to it to make sense.
    pub(crate) fn base(&self) -> Option<&str> {
        match self {
            Self::ImageIo { checkpoints, .. } => checkpoints.base(),
            _ => None,
        }
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
        let kind = read_kind(reader, &kind);
        let checksum = read_checksum(reader);
        let access = AccessConfig::read(reader, env);
        let (kind, access) = (kind?, access?);
        // Nobody is between us and a container of the same pod: upstream verifies nothing there.
        let is_node_pull = matches!(
            kind,
            Kind::Http {
                is_node_pull: true,
                ..
            }
        );
        Some(Self::Remote(Box::new(Remote {
            checksum: checksum.filter(|_| !is_node_pull),
            access,
            made: match kind.base() {
                Some(_) => Made::Delta,
                None => made,
            },
            kind,
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
    let (variable, reason) = match (kind, content) {
        ("http" | "s3" | "gcs" | "registry" | "imageio" | "vddk", "kubevirt") => return Some(Made::Disk),
        ("http" | "s3" | "gcs", "archive") => return Some(Made::Directory),
        ("registry" | "imageio", content) => (
            CONTENT_TYPE,
            format!("Unsupported content type {content} when importing from {kind}"),
        ),
        ("http" | "s3" | "gcs" | "vddk", other) => (
            CONTENT_TYPE,
            format!("Unable to process data: Unknown content type: {other}"),
        ),
        (other, _) => (SOURCE_VARIABLE, format!("Unknown data source: {other}")),
    };
    reader.reject(variable, reason);
    None
}

fn read_kind(reader: &mut EnvReader<'_>, kind: &str) -> Option<Kind> {
    match kind {
        "http" => read_http(reader),
        "s3" => Some(Kind::S3 {
            endpoint: endpoint(reader)?,
        }),
        "gcs" => Some(Kind::Gcs {
            endpoint: endpoint(reader)?,
            key_file: reader.text(GOOGLE_CREDENTIALS).map(Into::into),
        }),
        "registry" => Some(Kind::Registry {
            reference: endpoint(reader)?,
            architecture: reader.text(ARCHITECTURE),
        }),
        "imageio" => {
            let (endpoint, disk_id) = (http_endpoint(reader), required(reader, DISK_ID));
            Some(Kind::ImageIo {
                endpoint: endpoint?,
                disk_id: disk_id?,
                checkpoints: read_checkpoints(reader),
            })
        }
        "vddk" => {
            let endpoint = http_endpoint(reader);
            let (uuid, backing_file) = (required(reader, UUID), required(reader, BACKING_FILE));
            Some(Kind::Vddk {
                endpoint: endpoint?,
                uuid: uuid?,
                backing_file: backing_file?,
                thumbprint: reader.text(THUMBPRINT),
                checkpoints: read_checkpoints(reader),
            })
        }
        _ => None,
    }
}

fn required(reader: &mut EnvReader<'_>, name: &str) -> Option<String> {
    let text = reader.text(name);
    if text.is_none() {
        reader.reject(name, "is not set or empty");
    }
    text
}

fn read_http(reader: &mut EnvReader<'_>) -> Option<Kind> {
    let endpoint = http_endpoint(reader);
    let mut headers = Vec::new();
    for (name, line) in reader.with_prefix(EXTRA_HEADER) {
        match parse_header(&line, false) {
            Ok(header) => headers.extend(header),
            Err(error) => reader.reject(&name, error.to_string()),
        }
    }
    Some(Kind::Http {
        endpoint: endpoint?,
        headers,
        is_node_pull: reader.text(PULL_METHOD).as_deref() == Some("node"),
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
