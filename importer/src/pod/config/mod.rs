//! Reads the environment that CDI's controller gives the pod.

mod source;

use std::path::PathBuf;

use datapath::disk::CacheMode;
use fetch::pod::PROXY;
use program::env::{EnvErrors, EnvReader, NamedStrings, go_bool};
use program::{quantity, space};
use reporting::messages::ProductKind;
use reporting::watch::PhaseTracker;
use volume::DiskRequest;
use volume::limits::TransferLimits;

pub(super) use self::source::ENDPOINT;
use self::source::{CHECKSUM, EXTRA_HEADER, PREVIOUS_CHECKPOINT};
pub(super) use self::source::{CONTENT_TYPE, RemoteSource, SourceConfig, vddk_options};
use super::SOURCE_VARIABLE;
use super::image_volume::ImageVolume;
use super::message::{PROCESS, connect_prefix};
use super::provenance;

/// Kubernetes quantity: the requested size of the disk.
const IMAGE_SIZE: &str = "IMPORTER_IMAGE_SIZE";
/// Fraction of the volume that is reserved for its filesystem; an unparsable value counts as 0.
const FILESYSTEM_OVERHEAD: &str = "FILESYSTEM_OVERHEAD";
/// The value of the only label of the progress metric.
const OWNER_UID: &str = "OWNER_UID";
/// Boolean; must be set.
const PREALLOCATION: &str = "PREALLOCATION";
pub(super) const READY_FILE: &str = "IMPORTER_READY_FILE";
pub(super) const DONE_FILE: &str = "IMPORTER_DONE_FILE";
/// `TRYNONE`: bypass the page cache where possible.
const CACHE_MODE: &str = "CACHE_MODE";

/// The complete configuration of the pod.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) source: SourceConfig,
    pub(super) owner_uid: String,
    pub(super) wanted: DiskRequest,
    pub(super) ready_file: Option<PathBuf>,
    pub(super) done_file: Option<PathBuf>,
    pub(super) limits: TransferLimits,
    /// An image that the kubelet has mounted, which holds the disk.
    pub(super) image_volume: Option<ImageVolume>,
    /// True if labels should record where the disk comes from.
    pub(super) has_provenance: bool,
}

impl Config {
    /// Returns the kind of product that the pod makes.
    pub(super) fn product_kind(&self) -> ProductKind {
        match &self.source {
            SourceConfig::Remote(remote) => remote.made,
            SourceConfig::Blank => ProductKind::Disk,
        }
    }

    /// Returns the tracker of the phases, which have CDI's names.
    pub(super) fn phase_tracker(&self) -> PhaseTracker {
        if self.image_volume.is_some() {
            return PhaseTracker::new_conversion();
        }
        PhaseTracker::new(self.product_kind())
    }

    /// Reads all variables. The error contains every bad one.
    pub(super) fn from_env(env: &dyn NamedStrings) -> Result<Self, EnvironmentError> {
        let mut reader = EnvReader::new(env);
        // The variables are read in upstream's order, because the termination message names the
        // first bad one.
        let preallocate = reader.read_required(PREALLOCATION, go_bool);
        let image_size = reader.read_parsed(IMAGE_SIZE, quantity::parse_bytes);
        let source = SourceConfig::from_env(&mut reader, env);
        let config = Self {
            // A source that cannot be read has left an error in the reader, so `into_result` fails
            // below.
            source: source.unwrap_or(SourceConfig::Blank),
            owner_uid: reader.read_text(OWNER_UID).unwrap_or_default(),
            wanted: DiskRequest {
                size: image_size,
                overhead: space::parse_overhead(
                    &reader.read_text(FILESYSTEM_OVERHEAD).unwrap_or_default(),
                ),
                preallocate: preallocate.unwrap_or(false),
                cache: match reader.read_text(CACHE_MODE).as_deref() {
                    Some("TRYNONE") => CacheMode::Direct,
                    _ => CacheMode::Auto,
                },
            },
            ready_file: reader.read_text(READY_FILE).map(Into::into),
            done_file: reader.read_text(DONE_FILE).map(Into::into),
            limits: TransferLimits::of_pod(&mut reader),
            image_volume: ImageVolume::from_env(&reader),
            has_provenance: provenance::wants_labels(&mut reader),
        };
        match reader.into_result() {
            Ok(()) => Ok(config),
            Err(errors) => {
                Err(EnvironmentError { kind: env.get(SOURCE_VARIABLE).unwrap_or_default(), errors })
            }
        }
    }
}

/// An environment with bad variables.
#[derive(Debug)]
pub(super) struct EnvironmentError {
    /// The kind of source as given, which may be unknown.
    kind: String,
    errors: EnvErrors,
}

impl EnvironmentError {
    /// Logs every bad variable.
    pub(super) fn log_errors(&self) {
        for (name, reason) in self.errors.iter() {
            tracing::error!("environment variable {name}: {reason}");
        }
    }

    /// Returns the termination message: the message of upstream's importer about the first bad
    /// variable, in the order in which upstream reads them. It is empty where upstream exits
    /// without one.
    pub(super) fn termination_message(&self) -> String {
        let is_silent = |name, reason: &str| {
            name == PREALLOCATION || reason.starts_with("Unsupported content type")
        };
        if self.errors.iter().any(|(name, reason)| is_silent(name, reason)) {
            return String::new();
        }
        self.errors.iter().next().map_or_else(String::new, |(name, reason)| match name {
            SOURCE_VARIABLE | CONTENT_TYPE => reason.to_owned(),
            CHECKSUM => format!("{}invalid checksum: {reason}", connect_prefix(&self.kind)),
            ENDPOINT | PROXY | PREVIOUS_CHECKPOINT => connect_prefix(&self.kind) + reason,
            _ if name.starts_with(EXTRA_HEADER) => connect_prefix(&self.kind) + reason,
            _ => format!("{PROCESS}environment variable {name}: {reason}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fetch::http::parse_header;
    use sources::SourceLocation;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let basic = [(SOURCE_VARIABLE, "http"), (ENDPOINT, "http://h/x"), (PREALLOCATION, "false")];
        basic
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn remote(config: Config) -> RemoteSource {
        match config.source {
            SourceConfig::Remote(remote) => *remote,
            SourceConfig::Blank => panic!("a remote source"),
        }
    }

    fn refusal(pairs: &[(&str, &str)]) -> EnvironmentError {
        Config::from_env(&environment(pairs)).unwrap_err()
    }

    #[test]
    fn the_variables_of_the_controller_are_read() {
        let config = Config::from_env(&environment(&[
            (CONTENT_TYPE, "kubevirt"),
            (IMAGE_SIZE, "1288490188800m"),
            (FILESYSTEM_OVERHEAD, "0.06"),
            (OWNER_UID, "uid"),
            (PREALLOCATION, "T"),
            ("INSECURE_TLS", "yes"),
            (CACHE_MODE, "TRYNONE"),
            (CHECKSUM, ""),
            (READY_FILE, ""),
            ("IMPORTER_EXTRA_HEADER_0", "X-A: b"),
            ("IMPORTER_EXTRA_HEADER_1", "no colon"),
        ]))
        .unwrap();
        assert_eq!((config.wanted.size, config.wanted.overhead), (Some(1_288_490_189), 0.06));
        assert!(
            config.wanted.preallocate
                && config.wanted.cache == CacheMode::Direct
                && config.ready_file.is_none()
        );
        let remote = remote(config);
        let SourceLocation::Http { headers, .. } = remote.place else { panic!("http") };
        assert_eq!(headers, [parse_header("X-A: b", false).unwrap().unwrap()]);
        assert!(!remote.network.insecure, "a value that is not a boolean counts as false");
        assert!(remote.checksum.is_none());
    }

    #[test]
    fn a_node_pull_ignores_the_checksum() {
        let sum = format!("md5:{}", "0".repeat(32));
        let read = |method| {
            let environment = environment(&[(CHECKSUM, &sum), ("IMPORTER_PULL_METHOD", method)]);
            remote(Config::from_env(&environment).unwrap()).checksum.is_some()
        };
        assert!(read(""));
        assert!(!read("node"));
    }

    #[test]
    fn every_bad_variable_is_named_at_once() {
        let refusal = refusal(&[(IMAGE_SIZE, "big"), (ENDPOINT, "ftp://h/x"), (CHECKSUM, "crc:1")]);
        let names: Vec<&str> = refusal.errors.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [IMAGE_SIZE, ENDPOINT, CHECKSUM]);
        assert!(
            refusal
                .termination_message()
                .starts_with("Unable to process data: environment variable IMPORTER_IMAGE_SIZE: ")
        );
    }

    #[test]
    fn error_messages_match_upstream() {
        for (pairs, message) in [
            (vec![(SOURCE_VARIABLE, "glance")], "Unknown data source: glance"),
            (
                vec![(SOURCE_VARIABLE, "s3"), (ENDPOINT, "")],
                "Unable to connect to s3 data source: endpoint \"IMPORTER_ENDPOINT\" is missing or blank",
            ),
            (
                vec![(SOURCE_VARIABLE, "imageio"), ("IMPORTER_DISK_ID", "")],
                "Unable to process data: environment variable IMPORTER_DISK_ID: is not set or empty",
            ),
            (
                vec![(CHECKSUM, "abc")],
                "Unable to connect to http data source: invalid checksum: invalid checksum format: \
                 expected 'algorithm:hash', got 'abc'",
            ),
            (
                vec![(SOURCE_VARIABLE, "none"), (CONTENT_TYPE, "archive")],
                "Cannot create empty disk with content type archive",
            ),
            (vec![(CONTENT_TYPE, "x")], "Unable to process data: Unknown content type: x"),
            (vec![(PREALLOCATION, "")], ""),
            (vec![(PREALLOCATION, "yes"), (SOURCE_VARIABLE, "glance")], ""),
            (vec![(SOURCE_VARIABLE, "registry"), (CONTENT_TYPE, "archive")], ""),
        ] {
            assert_eq!(refusal(&pairs).termination_message(), message, "{pairs:?}");
        }
    }

    #[test]
    fn a_password_in_a_bad_endpoint_is_not_repeated() {
        let message = refusal(&[(ENDPOINT, "http://user:hunter2@[bad/")]).termination_message();
        assert!(
            message.starts_with("Unable to connect to http data source: unable to parse endpoint"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}
