//! The target of an upload or an import, in the notation of users: `dv/NAME` or `pvc/NAME`.

use std::fmt;
use std::str::FromStr;

use program::names::{MAX_SUBDOMAIN, is_subdomain};

use super::resource::ResourceKind;

/// The error for a kind before the slash that is missing or unknown.
pub(super) const UNKNOWN_KIND: &str = "use dv/NAME or pvc/NAME";

/// The kind of a [`VolumeTarget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeTargetKind {
    /// A DataVolume; its claim has the same name.
    DataVolume,
    /// A PersistentVolumeClaim.
    Claim,
}

impl VolumeTargetKind {
    pub(crate) fn resource_kind(self) -> ResourceKind {
        match self {
            Self::DataVolume => ResourceKind::DATA_VOLUMES,
            Self::Claim => ResourceKind::CLAIMS,
        }
    }
}

/// A DataVolume or a claim, identified by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeTarget {
    kind: VolumeTargetKind,
    name: String,
}

/// Fails if `name` is not valid in Kubernetes.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if is_subdomain(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_SUBDOMAIN).collect();
    Err(format!("{shown:?} cannot be a name: use small letters, digits, - and ."))
}

impl VolumeTarget {
    /// Creates a target. Fails if the name is not valid in Kubernetes.
    pub fn new(kind: VolumeTargetKind, name: &str) -> Result<Self, String> {
        check_name(name)?;
        Ok(Self { kind, name: name.to_owned() })
    }

    /// Returns the kind of the target.
    pub fn kind(&self) -> VolumeTargetKind {
        self.kind
    }

    /// Returns the name. The claim of a DataVolume has the same name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for VolumeTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("dv" | "datavolume", name)) => Self::new(VolumeTargetKind::DataVolume, name),
            Some(("pvc" | "persistentvolumeclaim", name)) => {
                Self::new(VolumeTargetKind::Claim, name)
            }
            _ => Err(UNKNOWN_KIND.to_owned()),
        }
    }
}

impl fmt::Display for VolumeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.resource_kind().short, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_consists_of_kind_and_name() {
        for (text, kind, shown) in [
            ("dv/a.b-1", VolumeTargetKind::DataVolume, "dv/a.b-1"),
            ("datavolume/a", VolumeTargetKind::DataVolume, "dv/a"),
            ("pvc/a", VolumeTargetKind::Claim, "pvc/a"),
            ("persistentvolumeclaim/a", VolumeTargetKind::Claim, "pvc/a"),
        ] {
            let target: VolumeTarget = text.parse().unwrap();
            assert_eq!((target.kind(), target.to_string().as_str()), (kind, shown));
        }
    }

    #[test]
    fn other_targets_are_refused() {
        for text in ["", "a", "vm/a", "DV/a"] {
            assert_eq!(text.parse::<VolumeTarget>(), Err(UNKNOWN_KIND.to_owned()), "{text}");
        }
        let long = format!("dv/{}", "a".repeat(254));
        for text in ["dv/", "dv/A", "pvc/a/b", "dv/../secrets", "dv/a?b", "dv/-a", "dv/a..b", &long]
        {
            let said = text.parse::<VolumeTarget>().unwrap_err();
            assert!(said.contains("cannot be a name"), "{said}");
        }
    }
}
