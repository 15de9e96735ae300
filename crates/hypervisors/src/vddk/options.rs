//! How the bytes of VMware disks are read.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use fetch::Network;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use crate::checkpoints::Checkpoints;
use crate::nfc::NfcEncoding;
use crate::pin::Thumbprint;

/// Folder of the library's shared objects, in its directory.
pub(super) const OBJECTS: &str = "lib64";

/// A disk, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VddkOptions {
    /// URL of vCenter or ESXi; the API is at `/sdk` below it.
    pub endpoint: Url,
    /// The name of the user, if the address contains it.
    pub user: Option<String>,
    /// The machine: its name, its path in the inventory, its object, or its instance UUID or BIOS
    /// UUID. Empty if an address names none.
    pub machine: String,
    /// True if the machine is given by a UUID and by nothing else.
    pub is_uuid: bool,
    /// The disk: its file, such as `[datastore1] vm/disk.vmdk`, its label, or its number.
    /// Empty if an address names none.
    pub disk: String,
    /// The snapshot to read, and the snapshot that the target already holds. Both are identified
    /// by their name or the name of their object, the second one also by its change ID.
    pub checkpoints: Checkpoints,
    /// Options that do not depend on the disk.
    pub access: VddkSourceOptions,
}

/// Options that are given in addition to an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VddkSourceOptions {
    /// Thumbprint of the server's certificate, which is passed on to the library.
    pub thumbprint: Option<String>,
    /// True if server certificates are verified with the certificates that the user has given.
    /// Otherwise the server is identified only by its thumbprint.
    pub has_certificates: bool,
    /// Paths of programs and libraries.
    pub installation: VddkInstallation,
    /// How the bytes of the disk are read.
    pub transport: VmwareTransport,
}

/// Paths of the library and of its plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VddkInstallation {
    /// Directory of VMware's library, which is in its folder `lib64`. Not needed with a plugin for
    /// tests.
    pub library: PathBuf,
    /// A mock plugin, which is used instead of `vddk` if the file exists.
    pub test_plugin: PathBuf,
    /// A file with more options for the library, which is used if it exists.
    pub config_file: PathBuf,
}

impl Default for VddkInstallation {
    fn default() -> Self {
        Self::of_pod(|path| path.into())
    }
}

impl VddkInstallation {
    /// Returns the paths in a CDI pod; `at` maps absolute paths of the pod.
    pub fn of_pod(at: impl Fn(&str) -> PathBuf) -> Self {
        Self {
            library: at("/opt/vmware-vix-disklib-distrib"),
            test_plugin: at("/opt/testing/libvddk-test-plugin.so"),
            config_file: at("/vddk-args/vddk-config-file"),
        }
    }

    /// True if the side-car image contains a plugin for tests.
    pub(super) fn is_for_tests(&self) -> bool {
        self.test_plugin.exists()
    }

    /// Returns the folder of the library's shared objects.
    pub(super) fn objects_path(&self) -> PathBuf {
        self.library.join(OBJECTS)
    }
}

/// How the bytes of a disk are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VmwareTransport {
    /// With VMware's library if it is installed, otherwise from the ESXi host, or by a lease if
    /// its port is closed.
    #[default]
    Auto,
    /// From the ESXi host, which needs no other program.
    Nfc(NfcEncoding),
    /// As an image, once, over HTTPS.
    Lease,
    /// With VMware's library.
    Vddk,
}

impl VmwareTransport {
    /// All transports, with their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("nfc", Self::Nfc(NfcEncoding::SkipZeros)),
        ("nfc-zlib", Self::Nfc(NfcEncoding::Zlib)),
        ("nfc-clear", Self::Nfc(NfcEncoding::Clear)),
        ("lease", Self::Lease),
        ("vddk", Self::Vddk),
    ];
}

impl FromStr for VmwareTransport {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, transport)| transport).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("{name:?} is not a transport: use {names}")
        })
    }
}

impl VddkSourceOptions {
    /// True if nbdkit reads the disk, with VMware's library or the plugin for tests.
    pub fn uses_nbdkit(&self) -> bool {
        let Self { installation, .. } = self;
        match self.transport {
            VmwareTransport::Auto => {
                installation.is_for_tests() || installation.objects_path().is_dir()
            }
            VmwareTransport::Nfc(_) | VmwareTransport::Lease => false,
            VmwareTransport::Vddk => true,
        }
    }

    /// True if a plugin for tests reads the disk.
    pub(super) fn is_for_tests(&self) -> bool {
        self.uses_nbdkit() && self.installation.is_for_tests()
    }

    /// Returns `network` with the TLS settings for the server. Certificates from the user take
    /// precedence over the thumbprint. With neither, the server is not verified.
    pub(super) fn verified_network(
        &self,
        network: &Arc<Network>,
    ) -> Result<Arc<Network>, SourceError> {
        if self.has_certificates || network.insecure {
            return Ok(Arc::clone(network));
        }
        // CDI's own tests replace the library with a test plugin and pass "testprint" as the
        // thumbprint. With that plugin, such text is ignored. Everywhere else it is rejected,
        // because a user who gives a thumbprint must not be connected to an unverified server.
        let is_test = self.is_for_tests();
        let thumbprint =
            self.thumbprint.as_ref().filter(|text| !is_test || Thumbprint::is_meant(text));
        let tls = match thumbprint {
            Some(thumbprint) => Thumbprint::parse(thumbprint)?.client_config()?,
            None => {
                tracing::warn!(
                    "neither certificates nor a thumbprint are given: the vSphere server is not verified"
                );
                let config = https::tls::insecure_client_config();
                let invalid = |error| SourceError::from_cause(SourceErrorKind::Invalid, error);
                Arc::new(config.map_err(invalid)?)
            }
        };
        Ok(network.clone_with(|network| network.tls = tls))
    }
}
