//! The volume mode of a claim (file system or block device) and its access modes.

use std::fmt;
use std::str::FromStr;

/// Kubernetes access modes, with the short names that kubectl prints.
const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// Parses an access mode, given by its full or short name in upper or lower case. Returns the full
/// name.
pub fn parse_access_mode(text: &str) -> Result<String, String> {
    let is_meant = |(name, short): &(&str, &str)| {
        text.eq_ignore_ascii_case(name) || text.eq_ignore_ascii_case(short)
    };
    match ACCESS_MODES.into_iter().find(is_meant) {
        Some((name, _)) => Ok(name.to_owned()),
        None => {
            let names = ACCESS_MODES.map(|(name, short)| format!("{name} ({short})"));
            Err(format!("use {}", names.join(", ")))
        }
    }
}

/// The mode of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeMode {
    /// A file system, whose metadata occupies a part of the volume.
    #[default]
    Filesystem,
    /// A block device.
    Block,
}

impl fmt::Display for VolumeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        })
    }
}

impl FromStr for VolumeMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "Filesystem" | "filesystem" => Ok(Self::Filesystem),
            "Block" | "block" => Ok(Self::Block),
            _ => Err("use Filesystem or Block"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_have_a_long_and_a_short_name() {
        for text in ["RWX", "rwx", "ReadWriteMany", "readwritemany"] {
            assert_eq!(parse_access_mode(text).as_deref(), Ok("ReadWriteMany"), "{text}");
        }
        let said = parse_access_mode("RWM").unwrap_err();
        assert!(said.starts_with("use ReadWriteOnce (RWO), "), "{said}");
    }
}
