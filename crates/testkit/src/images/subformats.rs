//! All single-file formats and variants that `qemu-img convert -O` can write.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use crate::fail::OrFail;
use crate::{disk, tools};

/// A format of disk images and the options of its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subformat {
    /// The format's name for qemu-img.
    pub format: &'static str,
    /// The value of qemu-img's `-o`. It may be empty.
    pub options: &'static str,
}

/// All variants. qcow2 is included as a reference that is known to work.
pub const SUBFORMATS: [Subformat; 14] = [
    Subformat::new("qcow2", ""),
    Subformat::new("vmdk", "subformat=monolithicSparse"),
    Subformat::new("vmdk", "subformat=streamOptimized"),
    Subformat::new("vdi", ""),
    Subformat::new("vdi", "static=on"),
    Subformat::new("vpc", "subformat=dynamic"),
    Subformat::new("vpc", "subformat=dynamic,force_size=on"),
    Subformat::new("vpc", "subformat=fixed"),
    Subformat::new("vpc", "subformat=fixed,force_size=on"),
    Subformat::new("vhdx", "subformat=dynamic"),
    Subformat::new("vhdx", "subformat=fixed"),
    Subformat::new("vhdx", "subformat=dynamic,block_size=1M"),
    Subformat::new("vhdx", "subformat=dynamic,block_size=8M"),
    Subformat::new("vhdx", "subformat=dynamic,block_state_zero=off"),
];

impl Subformat {
    /// The variant of `format` that qemu-img writes with these `options`.
    pub const fn new(format: &'static str, options: &'static str) -> Self {
        Self { format, options }
    }

    /// The variants in [`SUBFORMATS`] of this `format`.
    pub fn of(format: &str) -> impl Iterator<Item = Self> {
        SUBFORMATS.into_iter().filter(move |subformat| subformat.format == format)
    }

    /// Converts the raw disk in the file `raw` to `image`.
    pub fn write(&self, raw: &Path, image: &Path) {
        let mut words: Vec<&OsStr> =
            ["convert", "-t", "unsafe", "-f", "raw", "-O", self.format].map(OsStr::new).into();
        if !self.options.is_empty() {
            words.extend(["-o", self.options].map(OsStr::new));
        }
        words.extend([raw.as_os_str(), image.as_os_str()]);
        tools::run("qemu-img", words);
    }
}

impl fmt::Display for Subformat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.options.is_empty() { "" } else { " " };
        write!(f, "{}{separator}{}", self.format, self.options)
    }
}

/// The size and amount of data of the disk that `qemu-img convert -O raw` makes of an image.
#[derive(Debug)]
pub struct Oracle {
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// Total size of the disk's 4 KiB blocks that are not zero.
    pub data_bytes: u64,
}

impl Oracle {
    /// Converts `image`, which is in `format`, to the file `raw` and measures it. The original
    /// disk cannot be used instead, because some formats round sizes.
    pub fn ask(format: &str, image: &Path, raw: &Path) -> Self {
        assert!(
            tools::qemu_converts(format, image, raw),
            "qemu-img does not read {} as {format}",
            image.display()
        );
        Self {
            virtual_size: raw.metadata().or_fail(raw.display()).len(),
            data_bytes: disk::data_bytes(raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "tools: qemu-img"]
    fn every_subformat_can_be_written_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let content = disk::sparse_content(1, 3 << 20, 4);
        std::fs::write(path("raw"), &content).unwrap();
        for subformat in SUBFORMATS {
            subformat.write(&path("raw"), &path("image"));
            let oracle = Oracle::ask(subformat.format, &path("image"), &path("back"));
            let back = std::fs::read(path("back")).unwrap();
            assert!(back.starts_with(&content), "{subformat}");
            assert_eq!(back.len() as u64, oracle.virtual_size, "{subformat}");
            assert!(oracle.data_bytes > 0);
        }
    }
}
