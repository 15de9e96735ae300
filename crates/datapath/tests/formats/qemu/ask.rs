//! Returns what qemu-img does with an image, and what we do with it.

use std::path::Path;
use std::process::{Command, Output};

use bytes::Bytes;
use datapath::options::WriteOptions;
use datapath::{check, disk, transfer_image};
use diskimage::Format;
use stream::Error;
use stream::options::{PayloadKind, ReadOptions};
use testkit::tools;

use crate::common::{Memory, fast_folder, file};

/// Disks up to this size are read and compared; larger ones are only opened.
const MAX_DISK_BYTES: u64 = 64 << 20;

/// The outcome of opening an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The disk that was read.
    Disk(Vec<u8>),
    /// The image can be opened, but its disk is larger than [`MAX_DISK_BYTES`].
    Large,
    /// The image can be opened, but something behind its header is wrong.
    Unreadable(String),
    /// The image cannot be opened.
    Refused(String),
}

/// Returns our format of this name.
pub(crate) fn format(name: &str) -> Format {
    name.parse().unwrap()
}

/// Returns what qemu-img does with an image of `format`.
pub(crate) fn qemu(image: &[u8], format: &str) -> Opened {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("image"), image).unwrap();
    let info = output(&["info", "--output=json", "-f", format], &path("image"));
    let size = match info {
        Ok(json) => number(&json, "\"virtual-size\": "),
        Err(reason) => return Opened::Refused(reason),
    };
    if size > MAX_DISK_BYTES {
        return Opened::Large;
    }
    let image = path("image").display().to_string();
    let convert = ["convert", "-t", "unsafe", "-f", format, "-O", "raw", &image];
    match output(&convert, &path("raw")) {
        Ok(_) => Opened::Disk(std::fs::read(path("raw")).unwrap()),
        Err(reason) if reason.contains("Could not open") => Opened::Refused(reason),
        Err(reason) => Opened::Unreadable(reason),
    }
}

fn run(words: &[&str], path: &Path) -> Output {
    Command::new(tools::find("qemu-img")).args(words).arg(path).output().unwrap()
}

/// Returns the standard output of qemu-img, or its error messages if it failed.
fn output(words: &[&str], path: &Path) -> Result<String, String> {
    let output = run(words, path);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    output.status.success().then(|| text(&output.stdout)).ok_or_else(|| text(&output.stderr))
}

/// Returns the last number after `key`: the nodes below the image come first in the output.
fn number(json: &str, key: &str) -> u64 {
    let (_, rest) = json.rsplit_once(key).unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

/// Returns what we do with the image by one of the routes.
pub(crate) fn ours(image: &Bytes, format: Format, ranged: bool) -> Opened {
    let folder = fast_folder();
    let source = Memory { ranged, chunks: vec![1 << 20], ..Memory::new(image.clone()) };
    let target =
        disk::DiskOptions { available: MAX_DISK_BYTES, ..file(&folder.path().join("disk")) };
    let content = PayloadKind::Image(Some(format));
    let (reading, writing) = (ReadOptions::default(), WriteOptions::default());
    match transfer_image(&source, content, &target, &reading, &writing) {
        Ok(_) => Opened::Disk(std::fs::read(&target.path).unwrap()),
        Err(Error::Target(_)) => Opened::Large,
        Err(Error::Format(error)) => Opened::Refused(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Sound,
    Leaks,
    Errors,
    /// The image cannot be opened.
    Refused,
    /// The errors keep qemu-img from finishing its check.
    GaveUp,
}

/// Returns the verdict of `qemu-img check`, and its error messages.
pub(crate) fn qemu_check(image: &[u8], format: &str) -> (Verdict, String) {
    let folder = fast_folder();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    let output = run(&["check", "-f", format], &path);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let verdict = match output.status.code() {
        Some(0) => Verdict::Sound,
        Some(2) => Verdict::Errors,
        Some(3) => Verdict::Leaks,
        _ if said.contains("Could not open") => Verdict::Refused,
        _ => Verdict::GaveUp,
    };
    (verdict, said)
}

/// Returns our verdict, without the errors that qemu-img does not look for, and our messages.
pub(crate) fn our_check(image: Bytes, format: Format) -> (Verdict, String) {
    let content = PayloadKind::Image(Some(format));
    let report =
        check::check_image(&Memory::ranged(image), content, &ReadOptions::default(), false);
    let findings = match report {
        Ok(report) => report.findings,
        Err(Error::Format(error)) => return (Verdict::Refused, error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let errors = findings.error_count - findings.unknown_to_qemu;
    let verdict = match (errors, findings.leaked_clusters) {
        (0, 0) => Verdict::Sound,
        (0, _) => Verdict::Leaks,
        _ => Verdict::Errors,
    };
    (verdict, findings.errors.join("; "))
}
