//! Addresses of VMware disks, and how their bytes are read.

use std::str::FromStr;

use fetch::Network;
use fetch::error::invalid_error;
use stream::error::SourceError;
use url::Url;

use super::address::{MachineName, VmwareAddress, form_error};
use super::nbdkit::VddkInstallation;
use crate::checkpoints::Checkpoints;
use crate::nfc::NfcEncoding;

/// A disk, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VddkOptions {
    /// URL of vCenter or ESXi; the API is at `/sdk` below it.
    pub endpoint: Url,
    /// The machine.
    pub machine: MachineName,
    /// The disk: its file, such as `[datastore1] vm/disk.vmdk`, its label, or its number.
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

impl VmwareTransport {
    /// How the bytes of a disk travel from its host.
    pub(crate) fn host_encoding(self) -> NfcEncoding {
        match self {
            Self::Nfc(encoding) => encoding,
            _ => NfcEncoding::default(),
        }
    }
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

    /// True if a host of which vSphere names no thumbprint is verified.
    pub(crate) fn verifies_hosts(&self, network: &Network) -> bool {
        !network.insecure && (self.has_certificates || self.thumbprint.is_some())
    }

    /// True if a plugin for tests reads the disk.
    pub(super) fn is_for_tests(&self) -> bool {
        self.uses_nbdkit() && self.installation.is_for_tests()
    }
}

impl VddkOptions {
    /// Parses the address of a disk (see [`VmwareAddress::parse`]). The server is identified by the
    /// thumbprint if one is given without certificates, and otherwise by its certificate.
    pub fn parse(
        address: &str,
        checkpoints: Checkpoints,
        access: VddkSourceOptions,
    ) -> Result<Self, SourceError> {
        let options = Self::parse_any(address, checkpoints, access)?;
        if options.names_disk() { Ok(options) } else { Err(form_error()) }
    }

    /// Like [`VddkOptions::parse`], for an address in which the names of the disk and of the
    /// machine may be missing. They are empty then.
    pub fn parse_any(
        address: &str,
        mut checkpoints: Checkpoints,
        mut access: VddkSourceOptions,
    ) -> Result<Self, SourceError> {
        access.has_certificates |= access.thumbprint.is_none();
        let VmwareAddress { endpoint, machine, disk, snapshot, .. } =
            VmwareAddress::parse(address)?;
        if let Some(snapshot) = snapshot
            && checkpoints.current.replace(snapshot).is_some()
        {
            return Err(invalid_error(
                "the address names a snapshot, and so does --checkpoint: leave one of them out",
            ));
        }
        Ok(Self { endpoint, machine, disk, checkpoints, access })
    }

    /// True if both the machine and its disk are named.
    pub fn names_disk(&self) -> bool {
        !self.machine.as_str().is_empty() && !self.disk.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_must_name_vcenter_machine_and_disk() {
        let parse = |address| {
            VddkOptions::parse(address, Checkpoints::default(), VddkSourceOptions::default())
        };
        let options = parse("vddk+https://vc:8443/?vm=42-a&disk=%5Bds 1%5D vm/d.vmdk").unwrap();
        assert_eq!(options.endpoint.as_str(), "https://vc:8443/");
        assert_eq!((options.machine.as_str(), options.disk.as_str()), ("42-a", "[ds 1] vm/d.vmdk"));
        assert!(options.access.has_certificates, "the certificate is verified");
        let both = Checkpoints { current: Some("a".to_owned()), previous: None };
        let address = "vmware+https://vc/web/0?snapshot=b";
        assert_eq!(parse(address).unwrap().checkpoints.current.as_deref(), Some("b"));
        assert!(VddkOptions::parse(address, both, VddkSourceOptions::default()).is_err());
        for address in ["vddk+https://vc/", "vddk+https://vc/?vm=1", "vmware+https://vc/web"] {
            assert!(parse(address).is_err(), "{address}");
        }
    }
}
