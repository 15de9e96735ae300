//! The target of an upload or an import, in the notation of users: `dv/NAME` or `pvc/NAME`.

use std::fmt;
use std::str::FromStr;

use program::names::{MAX_SUBDOMAIN, is_subdomain};

use super::resource::ResourceKind;

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

/// Reasons why a text is not a valid target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeTargetError {
    /// The kind before the slash is missing or unknown.
    #[error("use dv/NAME or pvc/NAME")]
    Kind,
    /// The name is not valid in Kubernetes.
    #[error("{0:?} cannot be a name: use small letters, digits, - and .")]
    Name(String),
}

impl VolumeTarget {
    /// Creates a target. Fails if the name is not valid in Kubernetes.
    pub fn new(kind: VolumeTargetKind, name: &str) -> Result<Self, VolumeTargetError> {
        if !is_subdomain(name) {
            return Err(VolumeTargetError::Name(name.chars().take(MAX_SUBDOMAIN).collect()));
        }
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
    type Err = VolumeTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once('/').ok_or(VolumeTargetError::Kind)?;
        let kind = match kind {
            "dv" | "datavolume" => VolumeTargetKind::DataVolume,
            "pvc" | "persistentvolumeclaim" => VolumeTargetKind::Claim,
            _ => return Err(VolumeTargetError::Kind),
        };
        Self::new(kind, name)
    }
}

impl fmt::Display for VolumeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            VolumeTargetKind::DataVolume => "dv",
            VolumeTargetKind::Claim => "pvc",
        };
        write!(f, "{kind}/{}", self.name)
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
            assert_eq!(text.parse::<VolumeTarget>(), Err(VolumeTargetError::Kind), "{text}");
        }
        let long = format!("dv/{}", "a".repeat(254));
        for text in ["dv/", "dv/A", "pvc/a/b", "dv/../secrets", "dv/a?b", "dv/-a", "dv/a..b", &long]
        {
            let error = text.parse::<VolumeTarget>().unwrap_err();
            assert!(matches!(error, VolumeTargetError::Name(_)), "{text}");
        }
    }
}
