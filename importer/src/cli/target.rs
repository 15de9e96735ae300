//! Rejects targets that can only be mistakes on the command line.

use std::fs;
use std::io;
use std::path::Path;

use stream::codec::Codec;
use stream::error::{TargetError, TargetRefusedError};

use super::failure::{ImporterCommandError, usage_error};

/// The directory that contains devices. A regular file in it is stored in memory: a disk written
/// there would use up the machine's memory and be lost at the next boot.
const DEVICES: &str = "/dev";

/// The directory below `/dev` that is meant for files in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Rejects `-`, and paths below `/dev` that are missing or are regular files. Without this check,
/// a mistyped device name would create a file with that name.
pub(super) fn check_target(path: &Path) -> Result<(), ImporterCommandError> {
    if path == Path::new("-") {
        let what = "the target cannot be standard output, because it is not written in order: choose a file, a device or a directory";
        return Err(usage_error(what));
    }
    let is_file = fs::metadata(path).map_or(true, |found| found.is_file());
    if is_file && is_below_devices(path) {
        return Err(usage_error(format!(
            "device {} not found: check the name in the output of lsblk",
            path.display()
        )));
    }
    Ok(())
}

/// Extensions of file names that claim a format or an archive, and the command that makes such a
/// file of a raw disk. The first ones also need the name of the file.
const CLAIMS: [(&str, &str); 8] = [
    ("qcow2", "cdi-importer convert"),
    ("vmdk", "qemu-img convert -O vmdk"),
    ("vdi", "qemu-img convert -O vdi"),
    ("vhd", "qemu-img convert -O vpc"),
    ("vhdx", "qemu-img convert -O vhdx"),
    ("zip", "zip"),
    ("tar", "tar"),
    ("ova", "tar"),
];

/// Rejects a file whose name claims to be something other than a raw disk.
pub(super) fn check_name(path: &Path) -> Result<(), ImporterCommandError> {
    let codecs = Codec::SNIFFED.map(|codec| (codec.extension(), codec.name()));
    let mut claims = CLAIMS.iter().chain(&codecs);
    let claim = claims.find(|(extension, _)| has_extension(path, extension));
    let Some((extension, command)) = claim else {
        return Ok(());
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    let mut raw = path.with_extension("");
    if raw.extension().is_none() {
        raw.set_extension("img");
    }
    let (file, raw) = (path.display(), raw.display());
    let then = match command.split_once(' ') {
        Some(_) => format!("`{command} {raw} {file}`"),
        None => format!("`{command}`"),
    };
    Err(usage_error(format!(
        "{file} is named as {extension}, but a raw disk would be written: name the target {raw}, and make {extension} of it with {then}; \
         --output-format raw writes a raw disk with this name"
    )))
}

/// Returns true if the name of `path` ends in `.extension`, in any case.
pub(super) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// The error for a target that is also read.
pub(super) fn source_error(path: &Path) -> ImporterCommandError {
    let refusal = io::Error::other(TargetRefusedError::Source);
    stream::Error::from(TargetError::new("open", path, refusal)).into()
}

fn is_below_devices(path: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().unwrap_or(&absolute);
    // If the directory is missing too (a volume group, for example), there are no links to
    // resolve.
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    folder.starts_with(DEVICES) && !folder.starts_with(SHARED_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_among_devices_and_standard_output_are_refused() {
        for path in [
            "-",
            "/dev/nosuchdev",
            "/dev/no-group/volume",
            "/dev/../dev/nosuchdev",
            "/dev/shm/../nosuch",
        ] {
            check_target(Path::new(path)).unwrap_err();
        }
        for path in ["./-", "disk.img", "/dev/null", "/dev/shm/nosuchfile", "/device/nosuchfile"] {
            check_target(Path::new(path)).unwrap();
        }
    }

    #[test]
    fn names_that_claim_something_else_than_a_raw_disk_are_refused() {
        for (path, meant) in [
            (
                "vm.qcow2",
                "name the target vm.img, and make qcow2 of it with `cdi-importer convert vm.img vm.qcow2`",
            ),
            (
                "/x/VM.VHD",
                "name the target /x/VM.img, and make vhd of it with `qemu-img convert -O vpc /x/VM.img /x/VM.VHD`",
            ),
            ("z.img.gz", "name the target z.img, and make gz of it with `gzip`"),
            ("z.img.zst", "name the target z.img, and make zst of it with `zstd`"),
        ] {
            let refused = check_name(Path::new(path)).unwrap_err().to_string();
            assert!(refused.contains(meant), "{refused}");
        }
        for path in ["disk.img", "disk", "qcow2", "disk.raw", "boot.iso", ".gz"] {
            check_name(Path::new(path)).unwrap();
        }
    }
}
