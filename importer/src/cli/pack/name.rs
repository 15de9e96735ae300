//! The names on the command line of `pack`: the target, and the names of disks.

use std::fmt;
use std::path::PathBuf;

use program::names::{MAX_LABEL, is_label};

/// Maximum length of an image name in a layout, the same as for a tag in a registry.
const MAX_IMAGE_NAME_BYTES: usize = 128;

/// Name of a disk in an artifact. Importers use it in the name of a claim and in a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskName(String);

impl DiskName {
    pub(in super::super) fn parse(text: &str) -> Result<Self, String> {
        if is_label(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "a disk name consists of 1 to {MAX_LABEL} lower-case letters, digits and hyphens, without a hyphen at either end"
        ))
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The layout to write: `oci:DIR[:NAME]` or `oci-archive:FILE[:NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackTarget {
    /// True for a tar, false for a directory.
    pub(super) is_archive: bool,
    pub(in crate::cli) path: PathBuf,
    /// The name of the image in the layout.
    pub(super) image_name: Option<String>,
}

impl PackTarget {
    pub(in super::super) fn parse(text: &str) -> Result<Self, String> {
        let Some((transport @ ("oci" | "oci-archive"), rest)) = text.split_once(':') else {
            return Err(if text.starts_with("docker://") {
                "pack writes local layouts: write oci:DIR, then push it with skopeo copy --multi-arch=all oci:DIR docker://…".to_owned()
            } else {
                format!("write oci:{text} for a directory, or oci-archive:{text} for a tar")
            });
        };
        // Split at the first colon, as `import` does for its sources.
        let (path, name) = match rest.split_once(':') {
            Some((path, name)) => (path, Some(name)),
            None => (rest, None),
        };
        if path.is_empty() {
            return Err("the path is missing".to_owned());
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/+@:".contains(&byte);
        if let Some(name) = name
            && (name.is_empty()
                || name.len() > MAX_IMAGE_NAME_BYTES
                || !name.bytes().all(is_allowed))
        {
            return Err(format!(
                "the name after the path consists of 1 to {MAX_IMAGE_NAME_BYTES} letters, digits and . _ - / + @ :"
            ));
        }
        Ok(Self {
            is_archive: transport == "oci-archive",
            path: path.into(),
            image_name: name.map(str::to_owned),
        })
    }
}

impl fmt::Display for PackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.is_archive { "oci-archive" } else { "oci" };
        write!(f, "{transport}:{}", self.path.display())?;
        self.image_name.as_ref().map_or(Ok(()), |name| write!(f, ":{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_names_are_labels() {
        for name in ["a", "rootdisk", "data-2", &"x".repeat(63)] {
            assert_eq!(DiskName::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "a/b", "../x", "-a", "a-", "A", "a.b", "a b", "ä", &"x".repeat(64)] {
            assert!(DiskName::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn targets_are_layouts_with_or_without_a_name() {
        for text in
            ["oci:dir", "oci:/a/dir:v1", "oci-archive:f.tar", "oci-archive:./f.tar:quay.io/a/b:v1"]
        {
            assert_eq!(PackTarget::parse(text).unwrap().to_string(), text);
        }
        for (text, part) in [
            ("dir", "write oci:dir"),
            ("docker://host/name", "skopeo copy"),
            ("oci:", "path is missing"),
            ("oci::v1", "path is missing"),
            ("oci:dir:", "name after the path"),
            ("oci:dir:a b", "name after the path"),
        ] {
            let error = PackTarget::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
