//! The environment that CDI's controller gives the pod, as types.

use std::path::PathBuf;

use daemon::env::{EnvErrors, EnvReader, Strings, go_bool};
use daemon::secret::Secret;
use daemon::{quantity, space};
use datapath::digest::Checksum;
use datapath::target::Cache;
use url::Url;
use worker::volume::Wanted;
use worker::wording::Made;

use super::SOURCE_VARIABLE;
use super::message::{CONNECT, PROCESS};
use crate::source::http::{Header, parse_header};
use crate::source::proxy::ProxyConfig;

/// URL of the object.
const ENDPOINT: &str = "IMPORTER_ENDPOINT";
/// `kubevirt` (a disk image) or `archive` (a tar).
const CONTENT_TYPE: &str = "IMPORTER_CONTENTTYPE";
/// User and password for basic authentication, both or none.
const ACCESS_KEY_ID: &str = "IMPORTER_ACCESS_KEY_ID";
const SECRET_KEY: &str = "IMPORTER_SECRET_KEY";
/// Kubernetes quantity: the size that was asked for.
const IMAGE_SIZE: &str = "IMPORTER_IMAGE_SIZE";
/// Fraction of the volume that its filesystem keeps; anything unparsable is 0.
const FILESYSTEM_OVERHEAD: &str = "FILESYSTEM_OVERHEAD";
/// The value of the one label of the progress metric.
const OWNER_UID: &str = "OWNER_UID";
/// Mandatory boolean.
const PREALLOCATION: &str = "PREALLOCATION";
/// Boolean; anything unparsable is false.
const INSECURE_TLS: &str = "INSECURE_TLS";
/// Folder with further certificates to trust.
const CERT_DIR: &str = "IMPORTER_CERT_DIR";
/// Any name with this prefix holds one `Name: value`.
const EXTRA_HEADER: &str = "IMPORTER_EXTRA_HEADER_";
/// `algorithm:hex` of the whole object.
const CHECKSUM: &str = "IMPORTER_CHECKSUM";
/// `node`: a side container with the user's image serves the disk.
const PULL_METHOD: &str = "IMPORTER_PULL_METHOD";
const READY_FILE: &str = "IMPORTER_READY_FILE";
const DONE_FILE: &str = "IMPORTER_DONE_FILE";
/// What the errors of the proxy variables are filed under; their text names the variable.
const PROXY: &str = "proxy";
/// `TRYNONE`: bypass the page cache where possible.
const CACHE_MODE: &str = "CACHE_MODE";

/// Sources of upstream's importer that this version does not have.
const LATER_SOURCES: [&str; 5] = ["s3", "gcs", "registry", "imageio", "vddk"];

/// Everything the environment says.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) source: SourceConfig,
    pub(super) owner_uid: String,
    pub(super) wanted: Wanted,
    pub(super) ready_file: Option<PathBuf>,
    pub(super) done_file: Option<PathBuf>,
}

/// What fills the disk.
#[derive(Debug)]
pub(super) enum SourceConfig {
    /// A blank disk.
    Blank,
    /// An object, which is a disk image or an archive.
    Http(Box<HttpSettings>, Made),
}

/// How to reach the HTTP source.
#[derive(Debug, Clone)]
pub(super) struct HttpSettings {
    pub(super) endpoint: Url,
    pub(super) user: Option<Secret>,
    pub(super) password: Option<Secret>,
    pub(super) headers: Vec<Header>,
    pub(super) cert_dir: Option<PathBuf>,
    pub(super) insecure: bool,
    pub(super) proxy: ProxyConfig,
    pub(super) checksum: Option<Checksum>,
    pub(super) is_node_pull: bool,
}

impl Config {
    /// What the pod makes.
    pub(super) fn made(&self) -> Made {
        match self.source {
            SourceConfig::Http(_, made) => made,
            SourceConfig::Blank => Made::Disk,
        }
    }

    /// Reads all variables; every bad one is in the error.
    pub(super) fn read(env: &dyn Strings) -> Result<Self, Refusal> {
        let mut reader = EnvReader::new(env);
        let preallocate = reader.required(PREALLOCATION, go_bool);
        let image_size = reader.parsed(IMAGE_SIZE, quantity::parse_bytes);
        let source = read_source(&mut reader, env);
        let config = Self {
            source: source.unwrap_or(SourceConfig::Blank),
            owner_uid: reader.text(OWNER_UID).unwrap_or_default(),
            wanted: Wanted {
                size: image_size,
                overhead: space::overhead(&reader.text(FILESYSTEM_OVERHEAD).unwrap_or_default()),
                preallocate: preallocate.unwrap_or(false),
                cache: match reader.text(CACHE_MODE).as_deref() {
                    Some("TRYNONE") => Cache::Direct,
                    _ => Cache::Auto,
                },
            },
            ready_file: reader.text(READY_FILE).map(Into::into),
            done_file: reader.text(DONE_FILE).map(Into::into),
        };
        match reader.finish() {
            Ok(()) => Ok(config),
            Err(errors) => Err(Refusal(errors)),
        }
    }
}

/// `None` when the source was rejected.
fn read_source(reader: &mut EnvReader<'_>, env: &dyn Strings) -> Option<SourceConfig> {
    let kind = reader.text(SOURCE_VARIABLE).unwrap_or_default();
    // CDI's API treats a missing content type as a disk image.
    let content = reader.text(CONTENT_TYPE).unwrap_or_else(|| "kubevirt".to_owned());
    match (kind.as_str(), content.as_str()) {
        ("registry" | "imageio", content) if content != "kubevirt" => {
            reader.reject(
                CONTENT_TYPE,
                format!("Unsupported content type {content} when importing from {kind}"),
            );
        }
        (later, _) if LATER_SOURCES.contains(&later) => {
            let reason = format!("Unable to process data: source {later} is not supported by this version");
            reader.reject(SOURCE_VARIABLE, reason);
        }
        ("none", "archive") => {
            reader.reject(CONTENT_TYPE, "Cannot create empty disk with content type archive");
        }
        ("none", _) => {
            if reader.text(IMAGE_SIZE).is_none() {
                reader.reject(
                    IMAGE_SIZE,
                    "is not set or empty, and a blank disk has no other size",
                );
            }
            return Some(SourceConfig::Blank);
        }
        ("http", "kubevirt" | "archive") => {
            let made = if content == "archive" {
                Made::Directory
            } else {
                Made::Disk
            };
            return read_http(reader, env).map(|settings| SourceConfig::Http(Box::new(settings), made));
        }
        ("http", other) => {
            reader.reject(
                CONTENT_TYPE,
                format!("Unable to process data: Unknown content type: {other}"),
            );
        }
        (other, _) => reader.reject(SOURCE_VARIABLE, format!("Unknown data source: {other}")),
    }
    None
}

fn read_http(reader: &mut EnvReader<'_>, env: &dyn Strings) -> Option<HttpSettings> {
    let is_node_pull = reader.text(PULL_METHOD).as_deref() == Some("node");
    let endpoint = read_endpoint(reader);
    let mut headers = Vec::new();
    for (name, line) in reader.with_prefix(EXTRA_HEADER) {
        match parse_header(&line, false) {
            Ok(header) => headers.extend(header),
            Err(error) => reader.reject(&name, error.to_string()),
        }
    }
    let checksum = reader.parsed(CHECKSUM, |text| {
        // Blanks are as good as nothing.
        if text.trim().is_empty() {
            Ok(None)
        } else {
            text.parse().map(Some)
        }
    });
    let proxy = ProxyConfig::from_env(|name| env.get(name));
    if let Err(error) = &proxy {
        reader.reject(PROXY, error.to_string());
    }
    Some(HttpSettings {
        endpoint: endpoint?,
        user: reader.secret(ACCESS_KEY_ID),
        password: reader.secret(SECRET_KEY),
        headers,
        cert_dir: reader.text(CERT_DIR).map(Into::into),
        insecure: reader.lenient_bool(INSECURE_TLS),
        proxy: proxy.ok()?,
        // The server of a node pull is a container of the same pod: upstream verifies nothing there.
        checksum: checksum.flatten().filter(|_| !is_node_pull),
        is_node_pull,
    })
}

fn read_endpoint(reader: &mut EnvReader<'_>) -> Option<Url> {
    let Some(text) = reader.text(ENDPOINT) else {
        reader.reject(ENDPOINT, format!("endpoint \"{ENDPOINT}\" is missing or blank"));
        return None;
    };
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

/// An environment that cannot be worked with.
#[derive(Debug)]
pub(super) struct Refusal(EnvErrors);

impl Refusal {
    /// Every bad variable, for the log.
    pub(super) fn log(&self) {
        for (name, reason) in self.0.iter() {
            tracing::error!("environment variable {name}: {reason}");
        }
    }

    /// The termination message: what upstream's importer says about the first bad variable in the order in
    /// which it looks at them. Empty where it ends without one.
    pub(super) fn message(&self) -> String {
        let is_silent =
            |name, reason: &str| name == PREALLOCATION || reason.starts_with("Unsupported content type");
        if self.0.iter().any(|(name, reason)| is_silent(name, reason)) {
            return String::new();
        }
        self.0
            .iter()
            .next()
            .map_or_else(String::new, |(name, reason)| match name {
                SOURCE_VARIABLE | CONTENT_TYPE => reason.to_owned(),
                CHECKSUM => format!("{CONNECT}invalid checksum: {reason}"),
                ENDPOINT | PROXY => format!("{CONNECT}{reason}"),
                _ if name.starts_with(EXTRA_HEADER) => format!("{CONNECT}{reason}"),
                _ => format!("{PROCESS}environment variable {name}: {reason}"),
            })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let basic = [
            (SOURCE_VARIABLE, "http"),
            (ENDPOINT, "http://h/x"),
            (PREALLOCATION, "false"),
        ];
        basic
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn refusal(pairs: &[(&str, &str)]) -> Refusal {
        Config::read(&environment(pairs)).unwrap_err()
    }

    #[test]
    fn what_the_controller_sends_is_understood() {
        let config = Config::read(&environment(&[
            (CONTENT_TYPE, "kubevirt"),
            (IMAGE_SIZE, "1288490188800m"),
            (FILESYSTEM_OVERHEAD, "0.06"),
            (OWNER_UID, "uid"),
            (PREALLOCATION, "T"),
            (INSECURE_TLS, "yes"),
            (CACHE_MODE, "TRYNONE"),
            (CHECKSUM, ""),
            (READY_FILE, ""),
            ("IMPORTER_EXTRA_HEADER_0", "X-A: b"),
            ("IMPORTER_EXTRA_HEADER_1", "no colon"),
        ]))
        .unwrap();
        assert_eq!(
            (config.wanted.size, config.wanted.overhead),
            (Some(1_288_490_189), 0.06)
        );
        assert!(
            config.wanted.preallocate && config.wanted.cache == Cache::Direct && config.ready_file.is_none()
        );
        let SourceConfig::Http(http, _) = config.source else {
            panic!("http")
        };
        assert_eq!(http.headers, [parse_header("X-A: b", false).unwrap().unwrap()]);
        assert!(!http.insecure, "what is no boolean is false");
        assert!(http.checksum.is_none());
    }

    #[test]
    fn a_node_pull_ignores_the_checksum() {
        let sum = format!("md5:{}", "0".repeat(32));
        let read = |method| match Config::read(&environment(&[(CHECKSUM, &sum), (PULL_METHOD, method)])) {
            Ok(Config {
                source: SourceConfig::Http(http, _),
                ..
            }) => http.checksum.is_some(),
            other => panic!("{other:?}"),
        };
        assert!(read(""));
        assert!(!read("node"));
    }

    #[test]
    fn every_bad_variable_is_named_at_once() {
        let refusal = refusal(&[(IMAGE_SIZE, "big"), (ENDPOINT, "ftp://h/x"), (CHECKSUM, "crc:1")]);
        let names: Vec<&str> = refusal.0.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [IMAGE_SIZE, ENDPOINT, CHECKSUM]);
        assert!(
            refusal
                .message()
                .starts_with("Unable to process data: environment variable IMPORTER_IMAGE_SIZE: ")
        );
    }

    #[test]
    fn messages_are_those_of_upstream() {
        for (pairs, message) in [
            (vec![(SOURCE_VARIABLE, "glance")], "Unknown data source: glance"),
            (
                vec![(SOURCE_VARIABLE, "s3")],
                "Unable to process data: source s3 is not supported by this version",
            ),
            (
                vec![(ENDPOINT, "")],
                "Unable to connect to http data source: endpoint \"IMPORTER_ENDPOINT\" is missing or blank",
            ),
            (
                vec![(CHECKSUM, "abc")],
                "Unable to connect to http data source: invalid checksum: invalid checksum format: \
                 expected 'algorithm:hash', got 'abc'",
            ),
            (
                vec![(CONTENT_TYPE, "tarball")],
                "Unable to process data: Unknown content type: tarball",
            ),
            (
                vec![(SOURCE_VARIABLE, "none"), (CONTENT_TYPE, "archive")],
                "Cannot create empty disk with content type archive",
            ),
            (
                vec![(CONTENT_TYPE, "x")],
                "Unable to process data: Unknown content type: x",
            ),
            (vec![(PREALLOCATION, "")], ""),
            (vec![(PREALLOCATION, "yes"), (SOURCE_VARIABLE, "glance")], ""),
            (vec![(SOURCE_VARIABLE, "registry"), (CONTENT_TYPE, "archive")], ""),
        ] {
            assert_eq!(refusal(&pairs).message(), message, "{pairs:?}");
        }
    }

    #[test]
    fn a_password_in_a_bad_endpoint_is_not_repeated() {
        let message = refusal(&[(ENDPOINT, "http://user:hunter2@[bad/")]).message();
        assert!(
            message.starts_with("Unable to connect to http data source: unable to parse endpoint"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}
