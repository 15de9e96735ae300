//! The flags and the secret that are common to both populators.

use std::path::PathBuf;

use fetch::Network;
use fetch::pod::{PodNetwork, read_contact_limit};
use https::tls::{self, TrustedRoots};
use program::env::{EnvReader, NamedStrings};
use program::flags::{KlogFlags, OwnFlag};
use program::paths::PodPaths;
use sources::SourceLocation;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use volume::limits::TransferLimits;

use super::ReadSource;

pub(super) const VOLUME_PATH: &str = "volume-path";
const OWNER_UID: &str = "owner-uid";
pub(super) const PVC_SIZE: &str = "pvc-size";

/// The flags of both populators. The flag with the secret's name has no effect, because the
/// secret's keys are already available as environment variables.
pub(super) const FLAGS: [OwnFlag; 4] = [
    OwnFlag {
        name: VOLUME_PATH,
        purpose: "(mandatory) the disk: a block device, or a file disk.img that is created",
    },
    OwnFlag { name: OWNER_UID, purpose: "uid of the claim, the label of the progress metric" },
    OwnFlag { name: PVC_SIZE, purpose: "size of the claim in bytes, the limit for a file" },
    OwnFlag {
        name: "secret-name",
        purpose: "accepted, no effect: the keys of the secret are read from the environment",
    },
];

/// PEM certificates that are trusted instead of the system's.
const CA_CERTIFICATE: &str = "cacert";

/// The message that upstream logs.
const MALFORMED: &str = "CA certificate is malformed, failed to configure the CA cert pool";

/// The complete configuration of a populator.
#[derive(Debug)]
pub(super) struct PopulatorConfig {
    pub(super) place: SourceLocation,
    /// The network access to the source, which has no observer yet.
    pub(super) network: Network,
    pub(super) volume_path: PathBuf,
    pub(super) owner_uid: String,
    /// Size of the claim in bytes, if given.
    pub(super) size: Option<u64>,
    pub(super) limits: TransferLimits,
}

impl PopulatorConfig {
    /// Reads the flags and the secret. The error is a message for the log.
    pub(super) fn from_flags(
        read_source: ReadSource,
        flags: &KlogFlags,
        env: &dyn NamedStrings,
        stop: &CancellationToken,
    ) -> Result<Self, String> {
        let [volume_path] =
            flags.required_values([VOLUME_PATH]).map_err(|error| error.to_string())?;
        let size = parse_size(flags)?;
        let mut reader = EnvReader::new(env);
        let origin = read_source(flags, size, &mut reader)?;
        let roots = match reader.read_text(CA_CERTIFICATE) {
            // As in upstream, a given authority is the only one that is trusted.
            Some(pem) => TrustedRoots::from_pem(pem.as_bytes()),
            None => Some(tls::pod_roots(&PodPaths::from_env(env))),
        };
        let limits = TransferLimits::of_pod(&mut reader);
        let contact_limit = read_contact_limit(&mut reader);
        reader.into_result().map_err(|errors| errors.to_string())?;
        let origin = origin.ok_or("the secret cannot be used")?;
        let tls = if origin.insecure {
            tls::insecure_client_config()
        } else {
            tls::client_config(roots.ok_or(MALFORMED)?)
        };
        let tls = tls.map_err(|error| error.to_string())?;
        let network = PodNetwork::new(env, origin.credentials, origin.insecure)
            .map_err(|error| error.to_string())?
            .with_contact_limit(contact_limit)
            .open_with(tls, Handle::current(), stop.clone());
        Ok(Self {
            place: origin.place,
            network,
            volume_path: volume_path.into(),
            owner_uid: flags.own_value(OWNER_UID).unwrap_or_default().to_owned(),
            size,
            limits,
        })
    }
}

/// Parses the size of the claim in bytes. As in upstream, 0 means that the size is not given.
fn parse_size(flags: &KlogFlags) -> Result<Option<u64>, String> {
    let Some(text) = flags.own_value(PVC_SIZE) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(size) => Ok(Some(size)),
        Err(_) => {
            Err(format!("invalid value {text:?} for flag -{PVC_SIZE}: a number of bytes is needed"))
        }
    }
}
