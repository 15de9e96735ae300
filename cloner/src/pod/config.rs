//! Reads the flags and the environment of the cloner.

use std::path::PathBuf;

use program::cdi;
use program::env::{NamedStrings, go_bool};
use program::flags::{FlagError, KlogFlags};
use program::secret::Secret;

use super::names::{
    CONTENT_TYPE_FLAG, MOUNT_FLAG, PREALLOCATION_VARIABLE, UPLOAD_BYTES_FLAG, URL_VARIABLE,
};
use crate::client::ClientIdentity;

/// The complete configuration of the pod.
#[derive(Debug)]
pub(super) struct Config {
    /// True if the volume is a block device.
    pub(super) is_device: bool,
    pub(super) mount: PathBuf,
    /// Estimated number of bytes to send; 0 if there is no estimate.
    pub(super) upload_bytes: u64,
    /// The UID of the clone's owner.
    pub(super) owner_uid: Option<String>,
    pub(super) url: String,
    pub(super) preallocation: bool,
    certificate: String,
    key: Secret,
    authorities: String,
}

impl Config {
    /// Parses the number of bytes in the same way as Go's `flag` package.
    pub(super) fn upload_bytes(flags: &KlogFlags) -> Result<u64, FlagError> {
        flags.parse_value(UPLOAD_BYTES_FLAG, "0", "a whole number")
    }

    /// Reads the flags and the environment. The error is upstream's message about the first
    /// problem.
    pub(super) fn read(
        flags: &KlogFlags,
        upload_bytes: u64,
        env: &dyn NamedStrings,
    ) -> Result<Self, String> {
        let content_type = flags.own_value(CONTENT_TYPE_FLAG).unwrap_or_default();
        let mount = flags.own_value(MOUNT_FLAG).unwrap_or_default();
        tracing::info!("content-type is {content_type:?}");
        tracing::info!("mount is {mount:?}");
        tracing::info!("upload-bytes is {upload_bytes}");
        let is_device = match content_type {
            cdi::DEVICE_CLONE => true,
            cdi::FILES_CLONE => false,
            other => return Err(format!("Invalid content-type {other:?}")),
        };
        if mount.is_empty() {
            return Err(format!("Invalid mount {mount:?}"));
        }
        let optional = |name: &str| env.get(name).filter(|value| !value.is_empty());
        let needed =
            |name: &str| optional(name).ok_or_else(|| format!("Error getting env var {name}"));
        Ok(Self {
            is_device,
            mount: mount.into(),
            upload_bytes,
            owner_uid: optional("OWNER_UID"),
            // The variables are read in upstream's order, because the error names the first one
            // that is missing (contract §4.2).
            key: Secret::new(needed("CLIENT_KEY")?),
            certificate: needed("CLIENT_CERT")?,
            authorities: needed("SERVER_CA_CERT")?,
            url: needed(URL_VARIABLE)?,
            preallocation: optional(PREALLOCATION_VARIABLE)
                .is_some_and(|value| go_bool(&value).unwrap_or(false)),
        })
    }

    /// Returns the client's certificate and key, and the authorities that verify the server.
    pub(super) fn client_identity(&self) -> ClientIdentity<'_> {
        ClientIdentity {
            certificate: self.certificate.as_bytes(),
            key: self.key.expose().as_bytes(),
            authorities: self.authorities.as_bytes(),
        }
    }
}
