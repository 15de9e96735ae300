//! Locations that images are read from, each with the options of its kind, and the function that
//! opens them.
//!
//! The command line and the pod's environment create a [`SourceLocation`]; [`open_source`] turns
//! it into a source. A new kind of source needs a folder, a variant, and the match arms here. A
//! new object store needs the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use stream::error::{SourceAdvice, SourceError};
use stream::observe::LimitingPart;
use stream::source::Source;
use tracing::Span;
use url::Url;

use fetch::BasicCredentials;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::file::FileSource;
use fetch::http::{ExtraHeader, HttpConfig, HttpSource, parse_endpoint};
use fetch::scheme::{SourceKind, find_scheme, listed_schemes};
use hypervisors::Checkpoints;
use hypervisors::imageio::{self, ImageIoSource, disk_of_engine};
use hypervisors::nbd::{NbdSource, NbdUri};
use hypervisors::vddk::{self, VddkInfo, VddkOptions, VddkSource, VddkSourceOptions};
use oci::{self, RegistryOptions, RegistrySource};
use stores::glance::{self, GlanceAccess, GlanceOptions};
use stores::objects::ObjectOptions;
use stores::{gcs, s3};

/// A location that an image is read from. An address that may contain a password is stored as text
/// if its parser reports errors without repeating it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceLocation {
    /// A file, block device or pipe of this machine; `-` is standard input.
    File(PathBuf),
    /// An object on an HTTP server.
    Http {
        /// The URL of the object.
        url: Url,
        /// Additional request headers; empty for a location that was parsed from an address.
        headers: Vec<ExtraHeader>,
    },
    /// An object in S3: its address, in the form that the options determine.
    S3(String, ObjectOptions),
    /// An object in Google Cloud Storage: its address.
    Gcs(String, ObjectOptions),
    /// A disk in a container image: `docker://…`, `oci-archive:…` or `oci:…`.
    Registry {
        /// The image.
        reference: String,
        /// Options for registries.
        options: RegistryOptions,
    },
    /// An export of an NBD server: `nbd://…`, `nbds://…`, `nbd+unix://…` or `nbds+unix://…`.
    Nbd(String),
    /// A disk of an oVirt engine.
    ImageIo {
        /// The URL of the engine's API.
        api: Url,
        /// The identifier of the disk.
        disk_id: String,
        /// The snapshots of the disk to copy from and to build on.
        checkpoints: Checkpoints,
    },
    /// A disk of a VMware machine.
    Vddk(VddkOptions),
    /// An image of an OpenStack cloud.
    Glance(GlanceOptions),
}

/// Options that a command line accepts besides the address. Each kind of source uses its own.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Options for object stores.
    pub objects: ObjectOptions,
    /// Options for registries.
    pub registry: RegistryOptions,
    /// Snapshots for oVirt engines and VMware.
    pub checkpoints: Checkpoints,
    /// Options for VMware.
    pub vddk: VddkSourceOptions,
    /// Credentials for OpenStack clouds, which allow no anonymous access.
    pub access: Option<GlanceAccess>,
}

impl SourceLocation {
    /// Parses an address; its scheme selects the kind of source. An address without a scheme is a
    /// path.
    pub fn parse(text: &str, options: SourceOptions) -> Result<Self, SourceError> {
        // A blank that was copied with a URL does not belong to it.
        let text = if text.contains("://") { text.trim() } else { text };
        let url = text.to_owned();
        let registry = |reference| Self::Registry { reference, options: options.registry.clone() };
        if text.starts_with("oci:") || text.starts_with("oci-archive:") {
            return Ok(registry(url));
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let Some(scheme) = scheme else {
            return match text {
                "" => Err(invalid_error("the name of the source is empty")),
                _ => Ok(Self::File(text.into())),
            };
        };
        match find_scheme(&scheme).map(|scheme| scheme.kind) {
            Some(SourceKind::Http) => {
                let url = parse_endpoint(text);
                let url = url.map_err(|error| error.with_advice(SourceAdvice::WriteUrl))?;
                Ok(Self::Http { url, headers: Vec::new() })
            }
            Some(SourceKind::Registry) => Ok(registry(url)),
            Some(SourceKind::Nbd) => Ok(Self::Nbd(url)),
            Some(SourceKind::ImageIo) => {
                let (api, disk_id) = disk_of_engine(text)?;
                Ok(Self::ImageIo { api, disk_id, checkpoints: options.checkpoints })
            }
            Some(SourceKind::Vddk) => {
                let options = VddkOptions::parse(text, options.checkpoints, options.vddk)?;
                options.require_disk().map(Self::Vddk)
            }
            Some(SourceKind::Glance) => {
                let unknown = || invalid_error("an OpenStack cloud requires a login");
                let access = options.access.ok_or_else(unknown)?;
                GlanceOptions::parse(text, access).map(Self::Glance)
            }
            Some(SourceKind::File) => {
                let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
                path.map(Self::File).ok_or_else(|| {
                    invalid_error(format!(
                        "{text} is not a file on this machine: write file:///PATH, or the path alone"
                    ))
                })
            }
            Some(SourceKind::S3) => Ok(Self::S3(url, options.objects)),
            Some(SourceKind::Gcs) => Ok(Self::Gcs(url, options.objects)),
            // `/a/b://c` is an unusual path, not a scheme.
            None if scheme.contains('/') => Ok(Self::File(text.into())),
            None => Err(invalid_error(format!(
                "sources of scheme {scheme} are not supported: use {}, a path or -",
                listed_schemes().join(", ")
            ))),
        }
    }

    /// Fails if a request for this location cannot be valid: the name of an image is malformed, or
    /// required credentials are missing. [`open_source`] makes the same checks. A command line
    /// calls this function first, to distinguish usage errors from failures of the source.
    pub fn check_request(&self, credentials: Option<&BasicCredentials>) -> Result<(), SourceError> {
        match self {
            Self::Registry { reference, .. } => oci::check_reference(reference),
            Self::ImageIo { .. } => imageio::require_credentials(credentials).map(drop),
            Self::Vddk(_) => vddk::require_credentials(credentials).map(drop),
            Self::Nbd(uri) => NbdUri::parse(uri).map(drop),
            _ => Ok(()),
        }
    }

    /// Returns the server for log lines: a host or a bucket. `None` for local files.
    fn host_name(&self) -> Option<String> {
        let address = match self {
            Self::File(_) => return None,
            Self::Http { url, .. } => url.as_str(),
            Self::S3(url, _) | Self::Gcs(url, _) => url,
            Self::Registry { reference, .. } => return oci::registry_host(reference),
            Self::Nbd(uri) => uri,
            Self::ImageIo { api, .. } => api.as_str(),
            Self::Vddk(options) => options.endpoint.as_str(),
            Self::Glance(options) => options.identity_url().as_str(),
        };
        let host = Url::parse(address).ok()?.host_str()?.to_owned();
        Some(host).filter(|host| !host.is_empty())
    }

    /// True for a source on this machine, which needs no server.
    pub fn is_local(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Registry { reference, .. } => {
                reference.starts_with("oci:") || reference.starts_with("oci-archive:")
            }
            _ => false,
        }
    }

    /// Returns the kind of source that this location belongs to.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::File(_) => SourceKind::File,
            Self::Http { .. } => SourceKind::Http,
            Self::S3(..) => SourceKind::S3,
            Self::Gcs(..) => SourceKind::Gcs,
            Self::Registry { .. } => SourceKind::Registry,
            Self::Nbd(_) => SourceKind::Nbd,
            Self::ImageIo { .. } => SourceKind::ImageIo,
            Self::Vddk(_) => SourceKind::Vddk,
            Self::Glance(_) => SourceKind::Glance,
        }
    }
}

/// A source that is open, and additional information about it.
pub struct OpenedSource {
    /// The source, which provides the bytes.
    pub source: Box<dyn Source>,
    /// Additional information about the source.
    pub info: SourceInfo,
}

/// Information about a source in addition to its bytes.
pub enum SourceInfo {
    /// No additional information.
    None,
    /// An object on a web server, which is at this URL after redirects.
    Web(Url),
    /// A container image.
    Image {
        /// Environment variables of its containers, `NAME=value` each.
        variables: Vec<String>,
        /// Digest of the manifest or index that the reference names.
        digest: String,
    },
    /// Returns what the VDDK library reports about itself. The information is complete when the
    /// first byte has been read.
    Library(Box<dyn Fn() -> VddkInfo>),
}

impl OpenedSource {
    fn new(source: impl Source + 'static, info: SourceInfo) -> Self {
        Self { source: Box::new(source), info }
    }
}

/// Opens the source at `place`; `network` is used unless the source is local. Blocks, so it must
/// not be called inside an asynchronous task.
pub fn open_source(
    place: &SourceLocation,
    network: &Arc<Network>,
) -> Result<OpenedSource, SourceError> {
    let began = Instant::now();
    let opened = open_place(place, network);
    // The login to these sources says nothing about their speed, so they count the time from the
    // first request for bytes themselves.
    if !matches!(
        place,
        SourceLocation::ImageIo { .. } | SourceLocation::Vddk(_) | SourceLocation::Glance(_)
    ) {
        network.observer.record_limit(LimitingPart::Source, began.elapsed());
    }
    opened
}

fn open_place(place: &SourceLocation, network: &Arc<Network>) -> Result<OpenedSource, SourceError> {
    let span =
        place.host_name().map_or_else(Span::none, |host| tracing::error_span!("source", host));
    let network = &network.clone_with(|network| network.span = span.clone());
    let _entered = span.entered();
    let alone = |source| OpenedSource { source, info: SourceInfo::None };
    Ok(match place {
        SourceLocation::File(path) => {
            alone(Box::new(FileSource::open(path, network.stop.clone())?))
        }
        SourceLocation::Http { url, headers } => {
            let config = HttpConfig {
                credentials: network.credentials.clone(),
                headers: headers.clone(),
                ..HttpConfig::from_url(url.clone(), network)
            };
            let source = HttpSource::open(config)?;
            let location = source.location();
            OpenedSource::new(source, SourceInfo::Web(location))
        }
        SourceLocation::S3(url, options) => alone(Box::new(s3::open(url, network, options)?)),
        SourceLocation::Gcs(url, options) => alone(Box::new(gcs::open(url, network, options)?)),
        SourceLocation::Registry { reference, options } => {
            let source = RegistrySource::open(reference, network, options)?;
            let (variables, digest) =
                (source.env_variables().to_vec(), source.image_digest().to_owned());
            OpenedSource::new(source, SourceInfo::Image { variables, digest })
        }
        SourceLocation::Nbd(uri) => alone(Box::new(NbdSource::open(uri, network)?)),
        SourceLocation::ImageIo { api, disk_id, checkpoints } => {
            alone(Box::new(ImageIoSource::open(api, disk_id, checkpoints, network)?))
        }
        SourceLocation::Vddk(options) => {
            let source = VddkSource::open(options, network)?;
            let library = source.library_info_reader();
            OpenedSource::new(source, SourceInfo::Library(Box::new(library)))
        }
        SourceLocation::Glance(options) => alone(Box::new(glance::open(options, network)?)),
    })
}

#[cfg(test)]
mod tests {
    use stream::error::SourceErrorKind;

    use super::*;

    #[test]
    fn locations_are_told_apart_by_their_form() {
        for (location, expected) in [
            ("-", "file -"),
            ("disk.img", "file disk.img"),
            ("./-", "file ./-"),
            ("/a/b://c", "file /a/b://c"),
            ("./oci:x", "file ./oci:x"),
            ("file:///a%20b/disk.img", "file /a b/disk.img"),
            ("HTTP://host/disk", "http http://host/disk"),
            ("https://host/disk", "http https://host/disk"),
            ("s3://bucket/disk", "s3 s3://bucket/disk"),
            ("gs://bucket/disk", "gcs gs://bucket/disk"),
            ("docker://host/a:b", "registry docker://host/a:b"),
            ("oci:dir:tag", "registry oci:dir:tag"),
            ("oci-archive:x.tar", "registry oci-archive:x.tar"),
            (" http://host/copied ", "http http://host/copied"),
            ("nbd://host/export", "nbd nbd://host/export"),
            ("nbd+unix:///?socket=/s", "nbd nbd+unix:///?socket=/s"),
            ("ovirt+https://e/api/disks/1", "imageio https://e/api 1"),
        ] {
            let found = match SourceLocation::parse(location, SourceOptions::default()).unwrap() {
                SourceLocation::File(path) => format!("file {}", path.display()),
                SourceLocation::Http { url, headers } if headers.is_empty() => {
                    format!("http {url}")
                }
                SourceLocation::S3(url, _) => format!("s3 {url}"),
                SourceLocation::Gcs(url, _) => format!("gcs {url}"),
                SourceLocation::Registry { reference, .. } => format!("registry {reference}"),
                SourceLocation::Nbd(uri) => format!("nbd {uri}"),
                SourceLocation::ImageIo { api, disk_id, .. } => format!("imageio {api} {disk_id}"),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected);
        }
        for text in ["", "ftp://host/disk", "file://host/disk"] {
            let error = SourceLocation::parse(text, SourceOptions::default()).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn a_refused_scheme_is_reported_with_all_supported_ones() {
        let error = SourceLocation::parse("ftp://host/disk", SourceOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sources of scheme ftp are not supported: use http, https, s3, gs, docker, oci, oci-archive, nbd, \
             ovirt+https, vddk+https, glance+https, file, a path or -"
        );
    }
}
