//! Files of all formats that hold the same disk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use testkit::fail::OrFail;
use testkit::images::Subformat;
use testkit::tools;

/// Writes the files beside the disk `raw`, and returns them together with it and `qcow2`.
pub(crate) fn files(folder: &Path, raw: &Path, qcow2: &Path) -> Vec<PathBuf> {
    let path = |name: &str| folder.join(name);
    let zstd = "convert -c -f raw -O qcow2 -o compression_type=zstd,cluster_size=2M";
    let words = zstd.split(' ').map(OsStr::new);
    tools::run("qemu-img", words.chain([raw.as_os_str(), path("zstd.image").as_os_str()]));
    let mut files = vec![raw.to_owned(), qcow2.to_owned(), path("zstd.image")];
    for (name, format, options) in [
        ("stream.vmdk", "vmdk", "subformat=streamOptimized"),
        ("disk.vhdx", "vhdx", ""),
        ("dynamic.vhd", "vpc", "force_size=on"),
        ("fixed.vhd", "vpc", "subformat=fixed,force_size=on"),
        ("disk.vdi", "vdi", ""),
    ] {
        Subformat::new(format, options).write(raw, &path(name));
        files.push(path(name));
    }
    for (name, program, file) in [
        ("raw.gz", "gzip", raw),
        ("raw.xz", "xz", raw),
        ("fixed.vhd.gz", "gzip", &path("fixed.vhd")),
    ] {
        filter(program, file, &path(name));
        files.push(path(name));
    }
    files
}

/// Compresses a file by `program`.
pub(crate) fn filter(program: &str, file: &Path, packed: &Path) {
    let bytes = tools::filter(program, ["-c"], &std::fs::read(file).or_fail(file.display()));
    std::fs::write(packed, bytes).or_fail(packed.display());
}
