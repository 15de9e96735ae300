//! Addresses of VMware machines and disks on a command line.

use fetch::error::invalid_error;
use percent_encoding::percent_decode_str;
use stream::error::SourceError;
use url::{Url, form_urlencoded};

use super::options::{VddkOptions, VddkSourceOptions};
use crate::checkpoints::Checkpoints;

impl VddkOptions {
    /// Parses `vmware+https://[USER@]SERVER/MACHINE/DISK?snapshot=…`, or
    /// `vmware+https://SERVER/?vm=UUID&disk=FILE`, or the same with `vddk+`. The names of the disk
    /// and of the machine may be missing. The server is identified by the thumbprint if one is
    /// given without certificates, and otherwise by its certificate.
    ///
    /// The path is not left to [`Url`], for which a machine called `..` is another folder.
    pub fn parse(
        address: &str,
        mut checkpoints: Checkpoints,
        mut access: VddkSourceOptions,
    ) -> Result<Self, SourceError> {
        let unusable = form_error;
        let (_, address) = address.split_once('+').ok_or_else(unusable)?;
        let (scheme, address) = address.split_once("://").ok_or_else(unusable)?;
        let (place, query) = address.split_once('?').unwrap_or((address, ""));
        let (server, path) = place.split_once('/').unwrap_or((place, ""));
        let (mut names, mut snapshot) = ([None, None], None);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "vm" => names[0] = Some(value.into_owned()),
                "disk" => names[1] = Some(value.into_owned()),
                "snapshot" => snapshot = Some(value.into_owned()),
                _ => return Err(unusable()),
            }
        }
        let (mut prefix, is_uuid) = (path, names != [None, None]);
        if !is_uuid {
            // The slash in the file of a disk need not be encoded.
            let (machine, disk) = path.split_once('/').unwrap_or((path, ""));
            let decoded = |text| percent_decode_str(text).decode_utf8().ok().map(Into::into);
            (names, prefix) = ([machine, disk].map(decoded), "");
        }
        let is_odd = |text: &String| text.contains(char::is_control);
        if names.iter().chain([&snapshot]).flatten().any(is_odd) {
            return Err(unusable());
        }
        let [machine, disk] = names.map(Option::unwrap_or_default);
        let mut endpoint =
            Url::parse(&format!("{scheme}://{server}/{prefix}")).map_err(|_| unusable())?;
        if endpoint.password().is_some() {
            return Err(invalid_error(
                "the address contains a password, which other users of this machine can see: give --password-file",
            ));
        }
        let user = percent_decode_str(endpoint.username()).decode_utf8_lossy().into_owned();
        // This fails only for URLs without a host.
        endpoint.set_username("").map_err(|()| unusable())?;
        let user = Some(user).filter(|user| !user.is_empty());
        if let Some(snapshot) = snapshot
            && checkpoints.current.replace(snapshot).is_some()
        {
            return Err(invalid_error(
                "the address names a snapshot, and so does --checkpoint: leave one of them out",
            ));
        }
        access.has_certificates |= access.thumbprint.is_none();
        Ok(Self { endpoint, user, machine, is_uuid, disk, checkpoints, access })
    }

    /// Fails unless both the machine and its disk are named.
    pub fn require_disk(self) -> Result<Self, SourceError> {
        if self.names_disk() { Ok(self) } else { Err(form_error()) }
    }

    /// True if both the machine and its disk are named.
    pub fn names_disk(&self) -> bool {
        !self.machine.is_empty() && !self.disk.is_empty()
    }
}

fn form_error() -> SourceError {
    invalid_error(
        "a VMware disk is given as vmware+https://SERVER/MACHINE/DISK or …/?vm=UUID&disk=FILE",
    )
}

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    use super::*;

    fn parse(address: &str) -> Result<VddkOptions, SourceError> {
        VddkOptions::parse(address, Checkpoints::default(), VddkSourceOptions::default())
    }

    fn parts(address: &str) -> [String; 4] {
        let found = parse(address).unwrap();
        assert!(found.access.has_certificates, "the certificate is verified");
        let snapshot = found.checkpoints.current.unwrap_or_default();
        [found.endpoint.to_string(), found.machine, found.disk, snapshot]
    }

    #[test]
    fn an_address_names_server_machine_and_disk() {
        for (address, expected) in [
            ("vmware+https://vc/web/0", ["https://vc/", "web", "0", ""]),
            (
                "vmware+https://vc:8443/web/[ds 1] a/b.vmdk",
                ["https://vc:8443/", "web", "[ds 1] a/b.vmdk", ""],
            ),
            (
                "vmware+https://a@b@vc/DC%2Fvm%2Fa+b/Hard%20disk 1?snapshot=be+fore",
                ["https://vc/", "DC/vm/a+b", "Hard disk 1", "be fore"],
            ),
            ("vmware+https://vc/../%2E#1", ["https://vc/", "..", ".#1", ""]),
            (
                "vddk+https://vc/x/sdk?vm=42-a&disk=%5Bds 1%5D vm/d.vmdk",
                ["https://vc/x/sdk", "42-a", "[ds 1] vm/d.vmdk", ""],
            ),
            ("vmware+https://vc/web/", ["https://vc/", "web", "", ""]),
            ("vmware+https://vc", ["https://vc/", "", "", ""]),
        ] {
            assert_eq!(parts(address), expected.map(str::to_owned), "{address}");
        }
        let user = |address| parse(address).unwrap().user;
        assert_eq!(user("vmware+https://a%40b@vc/"), Some("a@b".to_owned()));
        assert_eq!(user("vmware+https://vc/"), None);
    }

    #[test]
    fn passwords_and_unknown_parts_are_refused() {
        for address in [
            "vmware+https://",
            "https://vc/web/0",
            "vmware+https://vc/web/0?snap=1",
            "vmware+https://vc/we%0Ab/0",
            "vmware+https://user:hidden@vc/web/0",
        ] {
            let message = parse(address).unwrap_err().to_string();
            assert!(!message.contains("hidden"), "{message}");
        }
        let both = Checkpoints { current: Some("a".to_owned()), previous: None };
        let address = "vmware+https://vc/web/0?snapshot=b";
        assert!(VddkOptions::parse(address, both, VddkSourceOptions::default()).is_err());
        for address in ["vddk+https://vc/", "vddk+https://vc/?vm=1", "vmware+https://vc/web"] {
            assert!(parse(address).unwrap().require_disk().is_err(), "{address}");
        }
    }

    proptest! {
        #[test]
        fn any_printable_name_survives_encoding(names in proptest::array::uniform3("\\PC+")) {
            let [machine, disk, snapshot] =
                names.each_ref().map(|name| utf8_percent_encode(name, NON_ALPHANUMERIC));
            let address = format!("vmware+https://vc/{machine}/{disk}?snapshot={snapshot}");
            prop_assert_eq!(&parts(&address)[1..], &names[..]);
        }
    }
}
