//! The disk that all sources serve, in the forms in which people keep disks.

use std::path::Path;

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::{disk, tools};

/// A disk of 12 MiB, half of it holes.
pub(crate) const DISK_BYTES: u64 = 12 << 20;

/// An object, and the name of the form that it has.
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// The disk, and its forms.
pub(crate) struct Images {
    pub(crate) disk: Vec<u8>,
    pub(crate) forms: Vec<Image>,
}

impl Images {
    pub(crate) fn build() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let disk = disk::sparse_content(11, DISK_BYTES, 2);
        let raw = folder.path().join("raw");
        std::fs::write(&raw, &disk).or_fail("write the disk");
        let plain = convert(&folder, &raw, "plain", &[]);
        let zlib = convert(&folder, &raw, "zlib", &["-c"]);
        let form = |name, bytes: &[u8]| Image { name, bytes: bytes.to_vec() };
        let packed = |program, bytes: &[u8]| tools::filter(program, ["-c", "-q"], bytes);
        let forms = vec![
            form("raw", &disk),
            form("raw.zst", &packed("zstd", &disk)),
            form("qcow2 zlib", &zlib),
            form("qcow2.gz", &packed("gzip", &plain)),
        ];
        Self { disk, forms }
    }
}

fn convert(folder: &TempDir, raw: &Path, name: &str, options: &[&str]) -> Vec<u8> {
    let target = folder.path().join(name);
    let words = ["convert", "-f", "raw", "-O", "qcow2"];
    let words = words.iter().chain(options).map(std::ffi::OsString::from);
    tools::run("qemu-img", words.chain([raw.into(), target.as_os_str().to_owned()]));
    std::fs::read(target).or_fail(name)
}
