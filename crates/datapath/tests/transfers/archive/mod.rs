//! Tests of archives: we must unpack them as GNU tar does, and never write outside the directory.

mod appliances;
mod atomic;
mod attacks;
mod clones;
mod dialects;
mod ordinary_user;
mod replacements;
mod round_trip;
mod snapshot;
mod tape;
mod truncation;

use std::path::Path;

use datapath::unpack::{UnpackOptions, UnpackReport, unpack_archive};
use stream::Error;
use stream::error::{ArchiveErrorKind, FormatError, TargetRefusedError};
use stream::options::ReadOptions;
use testkit::tools;

use crate::common::Memory;

/// Unpacks `tar` into `dir` without limits, as the pod does.
fn unpack_to(dir: &Path, tar: &[u8]) -> Result<UnpackReport, Error> {
    unpack_with(dir, tar, u64::MAX, &ReadOptions::default())
}

/// Unpacks `tar` into `dir`, but refuses it if a file of it exists already.
fn unpack_beside(dir: &Path, tar: &[u8]) -> Result<UnpackReport, Error> {
    let target = UnpackOptions { dir: dir.to_owned(), overwrite: false, available: u64::MAX };
    unpack_archive(&Memory::new(tar.to_vec()), &target, &ReadOptions::default())
}

fn unpack_with(
    dir: &Path,
    tar: &[u8],
    available: u64,
    options: &ReadOptions,
) -> Result<UnpackReport, Error> {
    let target = UnpackOptions { dir: dir.to_owned(), overwrite: true, available };
    unpack_archive(&Memory::new(tar.to_vec()), &target, options)
}

/// Returns the tar of these files in `folder`, by GNU tar with these flags.
fn gnu_packs(folder: &Path, flags: &[&str], names: &[&str]) -> Vec<u8> {
    let fixed = ["-c", "-C", folder.to_str().unwrap()];
    tools::filter("tar", [flags, &fixed, names].concat(), b"")
}

/// Returns the kind of an archive error.
fn refusal(error: &Error) -> &ArchiveErrorKind {
    match error {
        Error::Format(FormatError::Archive(refused)) => &refused.kind,
        other => panic!("not a refusal: {other}"),
    }
}

/// Returns the reason for which the target directory was refused.
fn target_refusal(error: &Error) -> &TargetRefusedError {
    match error {
        Error::Target(refused) => refused.refusal_reason().expect("a refusal"),
        other => panic!("not a refusal of the target: {other}"),
    }
}

/// Unpacks with the tar flags that upstream uses; returns false if GNU tar fails.
fn gnu_unpacks(dir: &Path, tar: &[u8]) -> bool {
    use std::io::Write;
    let mut child = std::process::Command::new(tools::find("tar"))
        .args(["--preserve-permissions", "--no-same-owner", "-x", "-C"])
        .arg(dir)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // GNU tar may stop reading early if it refuses the archive.
    let fed = child.stdin.take().unwrap().write_all(tar);
    let ended = child.wait().unwrap();
    ended.success() && fed.is_ok()
}
