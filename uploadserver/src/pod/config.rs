//! Reads the environment that CDI's controller gives the upload pod.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use https::tls::{ServerFiles, TlsProfile};
use program::command_line::CommandError;
use program::command_line::values::DurationValue;
use program::env::{EnvReader, NamedStrings};
use program::exit::ExitReason;
use program::paths::{self, PodPaths};
use program::{quantity, space};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use volume::DiskRequest;
use volume::limits::TransferLimits;

use super::KEY_VARIABLE;
use crate::access::ClientAccess;
use crate::config::{Config, RESUME, STALL, UploadDestination};

const LISTEN_ADDRESS: &str = "LISTEN_ADDRESS";
const LISTEN_PORT: &str = "LISTEN_PORT";
const CERTIFICATE: &str = "TLS_CERT_FILE";
/// File with the certificate authorities that sign client certificates.
const CLIENT_CA: &str = "CLIENT_CERT_FILE";
/// The common name that client certificates must contain.
const CLIENT_NAME: &str = "CLIENT_NAME";
/// The requested size of the disk, as a Kubernetes quantity.
const IMAGE_SIZE: &str = "UPLOAD_IMAGE_SIZE";
/// Fraction of the volume that is reserved for its filesystem; an unparsable value counts as 0.
const FILESYSTEM_OVERHEAD: &str = "FILESYSTEM_OVERHEAD";
/// A boolean; an unparsable value counts as false.
const PREALLOCATION: &str = "PREALLOCATION";
const CIPHERS: &str = "TLS_CIPHERS";
const MIN_VERSION: &str = "TLS_MIN_VERSION";
const DESTINATION: &str = "DESTINATION";
/// A time shortly before the certificates expire, in RFC 3339 format.
const DEADLINE: &str = "DEADLINE";
/// Our own variable: time without a byte after which a client is considered gone.
const STALL_SECONDS: &str = "CDI_UPLOAD_STALL_SECONDS";
/// Our own variable: time for which an interrupted resumable upload waits. 0 disables resumable
/// uploads.
const RESUME_SECONDS: &str = "CDI_UPLOAD_RESUME_SECONDS";

const DEFAULT_ADDRESS: &str = "0.0.0.0";
const DEFAULT_PORT: u16 = 8443;

/// Reads all variables of the pod. The exit codes are upstream's: 255, as in klog's `Fatal`, for a
/// malformed deadline, and 1 for everything else (contract §0.4, §2.1).
pub(super) fn read_config(
    env: &dyn NamedStrings,
    paths: &PodPaths,
) -> Result<Config, CommandError> {
    let mut reader = EnvReader::new(env);
    let deadline = reader.read_text(DEADLINE).map(|text| parse_deadline(&text)).transpose()?;
    let no_tls = "Error getting TLS config: invalid TLS config";
    let tls = read_tls(&reader).ok_or_else(|| CommandError::new(ExitReason::Internal, no_tls))?;
    let config = Config {
        // If the variable is set but empty, the server listens on all addresses.
        address: env.get(LISTEN_ADDRESS).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
        // An invalid port is ignored, as in CDI's server (contract §2.1).
        port: reader
            .read_text(LISTEN_PORT)
            .and_then(|text| text.parse().ok())
            .unwrap_or(DEFAULT_PORT),
        tls,
        profile: TlsProfile::new(
            &reader.read_text(MIN_VERSION).unwrap_or_default(),
            &reader.read_text(CIPHERS).unwrap_or_default(),
        ),
        access: ClientAccess::Named(reader.read_text(CLIENT_NAME).unwrap_or_default()),
        destination: read_destination(&reader, paths),
        wanted: DiskRequest {
            size: reader.read_parsed(IMAGE_SIZE, quantity::parse_bytes),
            overhead: space::parse_overhead(
                &reader.read_text(FILESYSTEM_OVERHEAD).unwrap_or_default(),
            ),
            preallocate: reader.lenient_bool(PREALLOCATION),
            ..DiskRequest::default()
        },
        deadline,
        stall: reader.read_parsed(STALL_SECONDS, str::parse).unwrap_or(DurationValue(STALL)).0,
        resume: reader.read_parsed(RESUME_SECONDS, parse_resume).unwrap_or(RESUME),
        limits: TransferLimits::of_pod(&mut reader),
        once: true,
        is_pod: true,
        display: None,
    };
    reader.into_result().map_err(|errors| CommandError::new(ExitReason::Internal, errors))?;
    Ok(config)
}

fn read_tls(reader: &EnvReader<'_>) -> Option<ServerFiles> {
    Some(ServerFiles {
        certificate: reader.read_text(CERTIFICATE)?.into(),
        key: reader.read_text(KEY_VARIABLE)?.into(),
        client_ca: reader.read_text(CLIENT_CA).map(PathBuf::from),
    })
}

fn read_destination(reader: &EnvReader<'_>, paths: &PodPaths) -> UploadDestination {
    let disk = match reader.read_text(DESTINATION).as_deref() {
        None | Some(paths::DISK_IMAGE) => paths.disk_image(),
        Some(paths::BLOCK_DEVICE) => paths.block_device(),
        Some(other) => other.into(),
    };
    UploadDestination { disk, dir: paths.data_path(), scratch: Some(paths.scratch_path()) }
}

fn parse_deadline(text: &str) -> Result<SystemTime, CommandError> {
    OffsetDateTime::parse(text, &Rfc3339).map(SystemTime::from).map_err(|error| {
        let sentence = format_args!("Failed to parse {DEADLINE} {text:?}: {error}");
        CommandError::new(ExitReason::Fatal, sentence)
    })
}

/// Parses a duration; 0 disables resuming.
fn parse_resume(text: &str) -> Result<Duration, <DurationValue as FromStr>::Err> {
    match text.parse() {
        Ok(0_u64) => Ok(Duration::ZERO),
        _ => text.parse().map(|DurationValue(time)| time),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Result<Config, CommandError> {
        let basic = [(KEY_VARIABLE, "/etc/tls/tls.key"), (CERTIFICATE, "/etc/tls/tls.crt")];
        let env: HashMap<String, String> = basic
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        read_config(&env, &PodPaths::from_prefix(None))
    }

    #[test]
    fn unset_variables_have_upstreams_defaults() {
        let config = config(&[]).unwrap();
        assert_eq!((config.address.as_str(), config.port), ("0.0.0.0", 8443));
        assert_eq!(config.destination.disk, PathBuf::from("/data/disk.img"));
        assert_eq!(config.access, ClientAccess::Named(String::new()));
        assert_eq!(config.wanted, DiskRequest::default());
        assert_eq!((config.stall, config.resume), (STALL, RESUME));
        assert!(config.once && config.deadline.is_none() && config.tls.client_ca.is_none());
    }

    #[test]
    fn set_variables_are_used() {
        let config = config(&[
            (LISTEN_ADDRESS, ""),
            (LISTEN_PORT, "x"),
            (DESTINATION, "/dev/cdi-block-volume"),
            (IMAGE_SIZE, "1Gi"),
            (FILESYSTEM_OVERHEAD, "0.06"),
            (PREALLOCATION, "true"),
            (CLIENT_NAME, "ns/a-ns/b"),
            (DEADLINE, "2026-11-21T10:00:00+02:00"),
            (STALL_SECONDS, "7"),
            (RESUME_SECONDS, "0"),
        ])
        .unwrap();
        assert_eq!((config.address.as_str(), config.port), ("", 8443));
        assert_eq!(config.destination.disk, PathBuf::from("/dev/cdi-block-volume"));
        let DiskRequest { size, overhead, preallocate, .. } = config.wanted;
        assert_eq!((size, overhead, preallocate), (Some(1 << 30), 0.06, true));
        assert_eq!(config.access, ClientAccess::Named("ns/a-ns/b".to_owned()));
        let deadline = config.deadline.unwrap().duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(deadline.unwrap().as_secs(), 1_795_248_000);
        assert_eq!((config.stall, config.resume), (Duration::from_secs(7), Duration::ZERO));
    }
}
