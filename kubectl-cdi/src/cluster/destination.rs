//! What is filled, as people name it: `dv/NAME` or `pvc/NAME`.

use std::fmt;
use std::str::FromStr;

use program::names::{MAX_SUBDOMAIN, is_subdomain};

use super::resource::Resource;

/// The kind of a [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A DataVolume; its claim has the same name.
    DataVolume,
    /// A PersistentVolumeClaim.
    Claim,
}

impl Kind {
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::DataVolume => Resource::DATA_VOLUMES,
            Self::Claim => Resource::CLAIMS,
        }
    }
}

/// A DataVolume or a claim, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    kind: Kind,
    name: String,
}

/// A text that is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No known kind before the slash.
    #[error("use dv/NAME or pvc/NAME")]
    Kind,
    /// A name that Kubernetes does not allow.
    #[error("{0:?} cannot be a name: use small letters, digits, - and .")]
    Name(String),
}

impl Target {
    /// The target of this kind and name.
    pub fn new(kind: Kind, name: &str) -> Result<Self, TargetError> {
        if !is_subdomain(name) {
            return Err(TargetError::Name(name.chars().take(MAX_SUBDOMAIN).collect()));
        }
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name, which is also that of its claim.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once('/').ok_or(TargetError::Kind)?;
        let kind = match kind {
            "dv" | "datavolume" => Kind::DataVolume,
            "pvc" | "persistentvolumeclaim" => Kind::Claim,
            _ => return Err(TargetError::Kind),
        };
        Self::new(kind, name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::DataVolume => "dv",
            Kind::Claim => "pvc",
        };
        write!(f, "{kind}/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_kind_and_a_name() {
        for (text, kind, shown) in [
            ("dv/a.b-1", Kind::DataVolume, "dv/a.b-1"),
            ("datavolume/a", Kind::DataVolume, "dv/a"),
            ("pvc/a", Kind::Claim, "pvc/a"),
            ("persistentvolumeclaim/a", Kind::Claim, "pvc/a"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.kind(), target.to_string().as_str()), (kind, shown));
        }
    }

    #[test]
    fn other_texts_are_not() {
        for text in ["", "a", "vm/a", "DV/a"] {
            assert_eq!(text.parse::<Target>(), Err(TargetError::Kind), "{text}");
        }
        let long = format!("dv/{}", "a".repeat(254));
        for text in [
            "dv/",
            "dv/A",
            "pvc/a/b",
            "dv/../secrets",
            "dv/a?b",
            "dv/-a",
            "dv/a..b",
            &long,
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(matches!(error, TargetError::Name(_)), "{text}");
        }
    }
}
