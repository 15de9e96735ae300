//! The command line of `pack`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use program::command_line::values::writable_folder;

use super::super::pack::{DiskName, PackTarget};
use super::{JobArgs, SourceArgs};

/// Default name of the first disk. KubeVirt's own examples use it.
const DEFAULT_NAME: &str = "rootdisk";

/// Architectures of Linux, as Go spells them (`go tool dist list`).
const ARCHITECTURES: [&str; 13] = [
    "386", "amd64", "arm", "arm64", "loong64", "mips", "mips64", "mips64le", "mipsle", "ppc64",
    "ppc64le", "riscv64", "s390x",
];

/// Arguments of `pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// The source of the first disk. Its options apply to the sources of all disks.
    #[command(flatten)]
    pub source: SourceArgs,

    /// OCI layout to write: `oci:DIR[:NAME]` or `oci-archive:FILE[:NAME]`
    #[arg(value_parser = PackTarget::parse, help_heading = None::<&str>)]
    pub target: PackTarget,

    /// Name of the first disk, by which importers select it; for the disk of a virtual machine, the
    /// name of its claim with `-` instead of `.`
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = DiskName::parse, help_heading = "Target")]
    pub name: DiskName,

    /// Add another disk with this name; may be repeated
    #[arg(long = "disk", value_name = "NAME=SOURCE", value_parser = parse_disk, conflicts_with = "checksum", help_heading = "Target")]
    pub disks: Vec<(DiskName, String)>,

    /// Add the VirtualMachine or VirtualMachineTemplate that is defined in this JSON file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Target")]
    pub config: Option<PathBuf>,

    /// Architecture of the guest, as Go spells it: amd64, arm64, s390x, … [default: this machine's]
    #[arg(long, value_name = "ARCH", value_parser = parse_architecture, help_heading = "Target")]
    pub guest_architecture: Option<String>,

    /// Replace an existing layout and all images in it
    #[arg(long, help_heading = "Target")]
    pub force: bool,

    /// Directory to write the whole disk to if an image cannot be read in the order of its disk,
    /// for example disk.qcow2.xz [default: none]
    #[arg(long, value_name = "DIR", value_parser = writable_folder, value_hint = ValueHint::DirPath, help_heading = "Transfer")]
    pub scratch: Option<PathBuf>,

    /// Options of the job.
    #[command(flatten)]
    pub job: JobArgs,
}

fn parse_disk(text: &str) -> Result<(DiskName, String), String> {
    let (name, source) =
        text.split_once('=').ok_or("use NAME=SOURCE, such as data=./data.qcow2")?;
    if source.is_empty() {
        return Err("the source after = is missing".to_owned());
    }
    Ok((DiskName::parse(name)?, source.to_owned()))
}

/// Parses an architecture. The names in the Linux kernel are accepted too, and become Go's.
fn parse_architecture(text: &str) -> Result<String, String> {
    let name = match text {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    if ARCHITECTURES.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("use one of {}", ARCHITECTURES.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_those_of_go() {
        for (text, name) in [("amd64", "amd64"), ("x86_64", "amd64"), ("aarch64", "arm64")] {
            assert_eq!(parse_architecture(text).unwrap(), name);
        }
        for text in ["", "AMD64", "amd46", "x86-64", "amd64 "] {
            assert!(parse_architecture(text).unwrap_err().contains("amd64"), "{text}");
        }
    }
}
