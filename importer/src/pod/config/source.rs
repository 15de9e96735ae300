//! Reads the source of the disk from the variables of its kind.

use std::path::{Path, PathBuf};
use std::{fs, io};

use fetch::http::parse_header;
use fetch::pod::{CERT_DIR, PodNetwork};
use fetch::scheme::SourceKind;
use hypervisors::Checkpoints;
use hypervisors::vddk::{VddkInstallation, VddkOptions, VddkSourceOptions, VmwareTransport};
use oci::{LayerSelector, RegistryOptions};
use program::env::{EnvReader, NamedStrings};
use program::paths::PodPaths;
use reporting::messages::ProductKind;
use sources::SourceLocation;
use stores::objects::ObjectOptions;
use stream::digest::Checksum;
use stream::error::errno_text;
use stream::options::{ChosenFormat, FORMAT_HEADER};
use url::Url;

use super::{IMAGE_SIZE, SOURCE_VARIABLE};
use crate::pod::PULL_METHOD;

/// URL of the object.
pub(in crate::pod) const ENDPOINT: &str = "IMPORTER_ENDPOINT";
/// `kubevirt` (a disk image) or `archive` (a tar archive).
pub(in crate::pod) const CONTENT_TYPE: &str = "IMPORTER_CONTENTTYPE";
/// Prefix of variables that hold one header each, as `Name: value`.
pub(super) const EXTRA_HEADER: &str = "IMPORTER_EXTRA_HEADER_";
/// Checksum of the whole object, as `algorithm:hex`.
pub(super) const CHECKSUM: &str = "IMPORTER_CHECKSUM";
/// The key file of a service account.
const GOOGLE_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Path at which CDI mounts the key file of a DataVolume.
const GOOGLE_SECRET: &str = "/google/credentials.json";
/// The platform of a multi-architecture image, as Go spells it.
const ARCHITECTURE: &str = "IMPORTER_REGISTRY_IMAGE_ARCHITECTURE";
/// The layer with the disk, by its digest (upstream's pull request 4214).
const LAYER_DIGEST: &str = "IMPORTER_REGISTRY_IMAGE_LAYER_DIGEST";
/// The layer with the disk, by an annotation. Upstream's design (VEP 395) has such a selector, but
/// does not name the variables yet.
const LAYER_ANNOTATION_KEY: &str = "IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_KEY";
const LAYER_ANNOTATION_VALUE: &str = "IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_VALUE";
/// The ID of the disk in an oVirt engine.
pub(super) const DISK_ID: &str = "IMPORTER_DISK_ID";
/// The UUID of a VMware virtual machine, the file of its disk, and the thumbprint of the server's
/// certificate.
const UUID: &str = "IMPORTER_UUID";
const BACKING_FILE: &str = "IMPORTER_BACKING_FILE";
const THUMBPRINT: &str = "IMPORTER_THUMBPRINT";
/// Ours, not CDI's: the extra header of a DataVolume, and the line among the options of VMware's
/// library, that choose how a VMware disk is read.
const TRANSPORT_HEADER: &str = "x-cdi-workers-transport";
const TRANSPORT_SETTING: &str = "transport";
/// The snapshot to copy.
const CURRENT_CHECKPOINT: &str = "IMPORTER_CURRENT_CHECKPOINT";
/// The snapshot that the target already holds. Only the difference to it is copied.
pub(super) const PREVIOUS_CHECKPOINT: &str = "IMPORTER_PREVIOUS_CHECKPOINT";

/// The source of the disk.
#[derive(Debug)]
pub(crate) enum SourceConfig {
    /// A blank disk.
    Blank,
    /// An object on a network.
    Remote(Box<RemoteSource>),
}

/// An object on a network, and the product that is made from it.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    pub(crate) network: PodNetwork,
    pub(crate) place: SourceLocation,
    /// The options for an OCI layout, if an HTTP source turns out to be one.
    pub(crate) layout: RegistryOptions,
    /// True if a side container with the user's image serves the disk.
    pub(crate) is_node_pull: bool,
    pub(crate) made: ProductKind,
    /// The format of the image, if the DataVolume states one.
    pub(crate) format: Option<ChosenFormat>,
    /// Checksum of the whole object.
    pub(crate) checksum: Option<Checksum>,
}

impl RemoteSource {
    /// Returns true where upstream reads a header of 512 bytes (contract §1.9). For a container
    /// image, upstream does that with the layer and not with the disk in it.
    pub(crate) fn needs_full_header(&self) -> bool {
        !matches!(self.place, SourceLocation::Registry { .. })
    }

    /// Returns the snapshot that the target must hold. The difference is relative to it.
    pub(crate) fn base_snapshot(&self) -> Option<&str> {
        location_base(&self.place)
    }
}

fn location_base(place: &SourceLocation) -> Option<&str> {
    match place {
        SourceLocation::ImageIo { checkpoints, .. }
        | SourceLocation::Vddk(VddkOptions { checkpoints, .. }) => checkpoints.base_snapshot(),
        _ => None,
    }
}

fn read_checkpoints(reader: &EnvReader<'_>) -> Checkpoints {
    Checkpoints {
        current: reader.read_text(CURRENT_CHECKPOINT),
        previous: reader.read_text(PREVIOUS_CHECKPOINT),
    }
}

impl SourceConfig {
    /// Reads the source. Returns `None` if a variable was rejected.
    pub(super) fn from_env(reader: &mut EnvReader<'_>, env: &dyn NamedStrings) -> Option<Self> {
        let kind = reader.read_text(SOURCE_VARIABLE).unwrap_or_default();
        // CDI's API treats a missing content type as a disk image.
        let content = reader.read_text(CONTENT_TYPE).unwrap_or_else(|| "kubevirt".to_owned());
        if kind == "none" {
            return read_blank(reader, &content);
        }
        let made = read_made(reader, &kind, &content)?;
        // All three read their variables even if another one has failed, so that every error is
        // reported.
        let mut format = None;
        let place = read_place(reader, env, &kind, &mut format);
        if format.is_some() && made != ProductKind::Disk {
            reader.reject_variable(CONTENT_TYPE, format!("{FORMAT_HEADER} is for images of disks"));
        }
        let checksum = read_checksum(reader);
        let network = PodNetwork::from_env(reader, env);
        let layout = match &place {
            Some(SourceLocation::Http { .. }) => read_registry_options(reader),
            _ => RegistryOptions::default(),
        };
        let (place, network) = (place?, network?);
        let is_node_pull = matches!(place, SourceLocation::Http { .. })
            && reader.read_text(PULL_METHOD).as_deref() == Some("node");
        Some(Self::Remote(Box::new(RemoteSource {
            // The object comes from a container of the same pod, where upstream does not verify a
            // checksum.
            checksum: checksum.filter(|_| !is_node_pull),
            network,
            format,
            made: match location_base(&place) {
                Some(_) if matches!(place, SourceLocation::Vddk(_)) => ProductKind::Changes,
                Some(_) => ProductKind::Delta,
                None => made,
            },
            place,
            layout,
            is_node_pull,
        })))
    }
}

fn read_blank(reader: &mut EnvReader<'_>, content: &str) -> Option<SourceConfig> {
    if content == "archive" {
        reader.reject_variable(CONTENT_TYPE, "Cannot create empty disk with content type archive");
        return None;
    }
    if reader.read_text(IMAGE_SIZE).is_none() {
        reader
            .reject_variable(IMAGE_SIZE, "is not set or empty, and a blank disk has no other size");
    }
    Some(SourceConfig::Blank)
}

fn read_made(reader: &mut EnvReader<'_>, kind: &str, content: &str) -> Option<ProductKind> {
    // A store may hold anything that an HTTP server may hold.
    let is_store = [SourceKind::S3, SourceKind::Gcs].iter().any(|store| store.name() == kind);
    let (variable, reason) = match (if is_store { "http" } else { kind }, content) {
        ("http" | "registry" | "imageio" | "vddk", "kubevirt") => return Some(ProductKind::Disk),
        ("http", "archive") => return Some(ProductKind::Directory),
        ("registry" | "imageio", content) => {
            (CONTENT_TYPE, format!("Unsupported content type {content} when importing from {kind}"))
        }
        ("http" | "vddk", other) => {
            (CONTENT_TYPE, format!("Unable to process data: Unknown content type: {other}"))
        }
        (other, _) => (SOURCE_VARIABLE, format!("Unknown data source: {other}")),
    };
    reader.reject_variable(variable, reason);
    None
}

fn read_place(
    reader: &mut EnvReader<'_>,
    env: &dyn NamedStrings,
    kind: &str,
    format: &mut Option<ChosenFormat>,
) -> Option<SourceLocation> {
    match kind {
        "http" => read_http(reader, format),
        "registry" => Some(SourceLocation::Registry {
            reference: require_endpoint(reader)?,
            options: read_registry_options(reader),
        }),
        "imageio" => {
            let (api, disk_id) = (http_endpoint(reader), require_text(reader, DISK_ID));
            Some(SourceLocation::ImageIo {
                api: api?,
                disk_id: disk_id?,
                checkpoints: read_checkpoints(reader),
            })
        }
        "vddk" => read_vddk(reader, &PodPaths::from_env(env)),
        "s3" => Some(SourceLocation::S3(require_endpoint(reader)?, ObjectOptions::default())),
        _ => {
            // Only CDI's own path counts as a key file of the DataVolume. Any other path refers to
            // a file that was mounted into the pod, and the import policy decides whether it may be
            // used.
            let key_file = reader.read_text(GOOGLE_CREDENTIALS).map(PathBuf::from);
            let given = PodPaths::from_env(env).resolve_path(GOOGLE_SECRET);
            let key_file = key_file.filter(|file| *file == given);
            let options = ObjectOptions { key_file, ..ObjectOptions::default() };
            Some(SourceLocation::Gcs(require_endpoint(reader)?, options))
        }
    }
}

fn read_registry_options(reader: &mut EnvReader<'_>) -> RegistryOptions {
    RegistryOptions {
        architecture: reader.read_text(ARCHITECTURE),
        layer: read_layer(reader),
        ..RegistryOptions::default()
    }
}

/// Reads the selector of a layer. A variable that is rejected stops the pod.
fn read_layer(reader: &mut EnvReader<'_>) -> Option<LayerSelector> {
    let digest = reader.read_parsed(LAYER_DIGEST, LayerSelector::from_digest);
    let value = reader.read_text(LAYER_ANNOTATION_VALUE);
    if value.is_some() && reader.read_text(LAYER_ANNOTATION_KEY).is_none() {
        reader.reject_variable(
            LAYER_ANNOTATION_VALUE,
            format!("{LAYER_ANNOTATION_KEY} is not set or empty"),
        );
    }
    let annotation = reader.read_parsed(LAYER_ANNOTATION_KEY, |key| match value {
        Some(value) => LayerSelector::from_annotation(key.to_owned(), value),
        None => Err(format!("{LAYER_ANNOTATION_VALUE} is not set or empty")),
    });
    if digest.is_some() && annotation.is_some() {
        reader.reject_variable(
            LAYER_DIGEST,
            format!("cannot be used together with {LAYER_ANNOTATION_KEY}"),
        );
    }
    digest.or(annotation)
}

fn read_vddk(reader: &mut EnvReader<'_>, paths: &PodPaths) -> Option<SourceLocation> {
    let endpoint = http_endpoint(reader);
    let (machine, disk) = (require_text(reader, UUID), require_text(reader, BACKING_FILE));
    let checkpoints = read_checkpoints(reader);
    let access = vddk_options(paths);
    let transport = read_transport(reader, &access.installation.config_file);
    // Checked here, before a new disk would replace the disk of the previous stages.
    if checkpoints.previous.is_some() && checkpoints.current.is_none() {
        reader.reject_variable(PREVIOUS_CHECKPOINT, "previous checkpoint set without current");
        return None;
    }
    Some(SourceLocation::Vddk(VddkOptions {
        endpoint: endpoint?,
        user: None,
        machine: machine?,
        is_uuid: true,
        disk: disk?,
        checkpoints,
        access: VddkSourceOptions {
            thumbprint: reader.read_text(THUMBPRINT),
            has_certificates: reader.read_text(CERT_DIR).is_some(),
            transport,
            ..access
        },
    }))
}

/// Reads how the bytes of a VMware disk are read: from an extra header, as formats are, or from a
/// line of the file with options of VMware's library.
fn read_transport(reader: &mut EnvReader<'_>, file: &Path) -> VmwareTransport {
    let lines = fs::read(file).unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            reader.reject_variable(&file.display().to_string(), errno_text(&error));
        }
        Vec::new()
    });
    let lines = String::from_utf8_lossy(&lines);
    let of_file = lines.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == TRANSPORT_SETTING).then(|| (file.display().to_string(), value.to_owned()))
    });
    let of_headers = reader.with_prefix(EXTRA_HEADER).into_iter().filter_map(|(variable, line)| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case(TRANSPORT_HEADER).then(|| (variable, value.to_owned()))
    });
    let mut transport = VmwareTransport::default();
    for (place, value) in of_file.chain(of_headers) {
        match value.trim().parse() {
            Ok(chosen) => transport = chosen,
            Err(reason) => {
                let reason: String = reason;
                reader.reject_variable(&place, reason);
            }
        }
    }
    transport
}

/// Returns how VMware disks are read: with VMware's library if a side-car has brought it.
pub(in crate::pod) fn vddk_options(paths: &PodPaths) -> VddkSourceOptions {
    let installation = VddkInstallation::of_pod(|path| paths.resolve_path(path));
    VddkSourceOptions { installation, ..VddkSourceOptions::default() }
}

fn require_text(reader: &mut EnvReader<'_>, name: &str) -> Option<String> {
    let text = reader.read_text(name);
    if text.is_none() {
        reader.reject_variable(name, "is not set or empty");
    }
    text
}

/// Reads the location of an object on a web server. The format is taken out of the extra headers,
/// which are the only field of a DataVolume that CDI passes on as it is.
fn read_http(
    reader: &mut EnvReader<'_>,
    format: &mut Option<ChosenFormat>,
) -> Option<SourceLocation> {
    let endpoint = http_endpoint(reader);
    let mut headers = Vec::new();
    for (name, line) in reader.with_prefix(EXTRA_HEADER) {
        match parse_header(&line, false) {
            Ok(None) => {}
            Ok(Some(header)) => match header.value_of(FORMAT_HEADER).map(|value| value.parse()) {
                None => headers.push(header),
                Some(Ok(chosen)) => *format = Some(chosen),
                Some(Err(reason)) => {
                    let reason: String = reason;
                    reader.reject_variable(&name, format!("{FORMAT_HEADER}: {reason}"));
                }
            },
            Err(error) => reader.reject_variable(&name, error.to_string()),
        }
    }
    Some(SourceLocation::Http { url: endpoint?, headers })
}

fn read_checksum(reader: &mut EnvReader<'_>) -> Option<Checksum> {
    let checksum = reader.read_parsed(CHECKSUM, |text| {
        // A blank value counts as not set.
        if text.trim().is_empty() { Ok(None) } else { text.parse().map(Some) }
    });
    checksum.flatten()
}

fn require_endpoint(reader: &mut EnvReader<'_>) -> Option<String> {
    let text = reader.read_text(ENDPOINT);
    if text.is_none() {
        reader.reject_variable(ENDPOINT, format!("endpoint \"{ENDPOINT}\" is missing or blank"));
    }
    text
}

fn http_endpoint(reader: &mut EnvReader<'_>) -> Option<Url> {
    let text = require_endpoint(reader)?;
    // The error does not repeat the text, which may contain a password.
    let problem = match Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Some(url),
        Ok(url) => format!("unsupported protocol scheme {:?}", url.scheme()),
        Err(error) => error.to_string(),
    };
    reader.reject_variable(ENDPOINT, format!("unable to parse endpoint \"{ENDPOINT}\": {problem}"));
    None
}
