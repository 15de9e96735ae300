//! Rejects targets that can only be mistakes on the command line.

use std::fs;
use std::io;
use std::path::Path;

use datapath::error::{TargetError, TargetRefusedError};

use super::failure::ImporterCommandError;

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
        return Err(ImporterCommandError::Usage(what.to_owned()));
    }
    let is_file = fs::metadata(path).map_or(true, |found| found.is_file());
    if is_file && is_below_devices(path) {
        return Err(ImporterCommandError::Usage(format!(
            "device {} not found: check the name in the output of lsblk",
            path.display()
        )));
    }
    Ok(())
}

/// The error for a target that is also read.
pub(super) fn source_error(path: &Path) -> ImporterCommandError {
    let refusal = io::Error::other(TargetRefusedError::Source);
    datapath::Error::from(TargetError::new("open", path, refusal)).into()
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
}
