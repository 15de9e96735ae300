//! Does the work that CDI's script `cloner_startup.sh` does before it starts the cloner: it
//! inspects the volume, and turns variables into flags.

use std::ffi::OsString;
use std::path::Path;

use program::cdi;
use program::env::NamedStrings;

use super::names::{
    CONTENT_TYPE_FLAG, MODE_VARIABLE, MOUNT_FLAG, PREALLOCATION_VARIABLE, UPLOAD_BYTES_FLAG,
};
use crate::estimate::{self, SizeKind};
use crate::source::VolumeSource;

/// The variable that contains the path of the volume.
const MOUNT_VARIABLE: &str = "MOUNT_POINT";

/// Returns the arguments that the script would pass, and prints the same lines as the script. The
/// error is the message with which the script exits, with code 1.
pub(super) fn startup_arguments(
    env: &dyn NamedStrings,
    print: &mut dyn FnMut(&str),
) -> Result<Vec<OsString>, String> {
    let variable = |name: &str| {
        env.get(name).filter(|value| !value.is_empty()).ok_or_else(|| format!("{name} missing"))
    };
    let mode = variable(MODE_VARIABLE)?;
    let mount = variable(MOUNT_VARIABLE)?;
    print(&format!("{MODE_VARIABLE}={mode}"));
    print(&format!("{MOUNT_VARIABLE}={mount}"));
    let path = Path::new(&mount);
    let (content_type, bytes) = match mode.as_str() {
        "block" => match VolumeSource::open_device(path) {
            Ok(VolumeSource::Device(device)) => (cdi::DEVICE_CLONE, device.size()),
            Ok(VolumeSource::Files(_)) => return Err(format!("{mount} is not a block device")),
            Err(error) => return Err(error.to_string()),
        },
        "filesystem" => {
            let is_preallocated = env.get(PREALLOCATION_VARIABLE).as_deref() == Some("true");
            // Bytes are counted like the script's `du` call does: the tar of a preallocated clone
            // has no holes (contract §4.1, §4.3).
            let count = if is_preallocated { SizeKind::Apparent } else { SizeKind::Allocated };
            (cdi::FILES_CLONE, estimate::tree_bytes(path, count))
        }
        other => {
            return Err(format!("{MODE_VARIABLE} is {other:?}: it must be block or filesystem"));
        }
    };
    print(&format!("UPLOAD_BYTES={bytes}"));
    let arguments = [
        "-v=3".to_owned(),
        "-alsologtostderr".to_owned(),
        format!("-{CONTENT_TYPE_FLAG}"),
        content_type.to_owned(),
        format!("-{UPLOAD_BYTES_FLAG}"),
        bytes.to_string(),
        format!("-{MOUNT_FLAG}"),
        mount,
    ];
    Ok(arguments.map(OsString::from).into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn run(pairs: &[(&str, &str)]) -> (Result<Vec<OsString>, String>, Vec<String>) {
        let env: HashMap<String, String> =
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut printed = Vec::new();
        let result = startup_arguments(&env, &mut |line| printed.push(line.to_owned()));
        (result, printed)
    }

    #[test]
    fn both_variables_are_required_and_volume_mode_is_reported_first() {
        for (pairs, sentence) in [
            (&[][..], "VOLUME_MODE missing"),
            (&[("VOLUME_MODE", ""), ("MOUNT_POINT", "/")], "VOLUME_MODE missing"),
            (&[("VOLUME_MODE", "block")], "MOUNT_POINT missing"),
            (&[("VOLUME_MODE", "block"), ("MOUNT_POINT", "")], "MOUNT_POINT missing"),
        ] {
            let (result, printed) = run(pairs);
            assert_eq!(result.unwrap_err(), sentence);
            assert!(printed.is_empty());
        }
    }

    #[test]
    fn a_block_source_announces_its_size_as_upload_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(12_345).unwrap();
        let path = file.path().to_str().unwrap();
        let (result, printed) = run(&[("VOLUME_MODE", "block"), ("MOUNT_POINT", path)]);
        let mount = format!("MOUNT_POINT={path}");
        assert_eq!(printed, ["VOLUME_MODE=block", &mount, "UPLOAD_BYTES=12345"]);
        let arguments = result.unwrap();
        assert_eq!(
            arguments,
            [
                "-v=3",
                "-alsologtostderr",
                "-content-type",
                "blockdevice-clone",
                "-upload-bytes",
                "12345",
                "-mount",
                path
            ]
        );
    }
}
