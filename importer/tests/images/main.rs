//! Imports of images, sound and malicious: each becomes the disk that qemu-img makes, or is
//! refused. Also the command line.

mod check;
mod cli;
mod convert;
mod endless;
mod foreign;
mod formats;
mod hostile;
mod mistakes;
mod oracle;
mod pack;
mod qcow2_matrix;
mod same_disk;
mod terminal;
mod to_qcow2;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stream::digest::{DigestAlgorithm, RunningDigest};
use testkit::fail::OrFail;
use testkit::process::Finished;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");

/// Parses the lines of `--progress json`.
fn events(finished: &Finished) -> Vec<serde_json::Value> {
    finished.stdout.lines().map(|line| serde_json::from_str(line).or_fail(line)).collect()
}

/// The checksum of `bytes`, with the name of its algorithm.
fn sha256(bytes: &[u8]) -> String {
    let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
    digest.update(bytes);
    digest.finish_digest()
}

/// Creates a file of this size that is a hole with a little data at three places.
fn write_large(path: &Path, bytes: u64) {
    let file = File::create(path).or_fail(path.display());
    file.set_len(bytes).or_fail(path.display());
    for place in [5 << 20, bytes / 2, bytes - 4096] {
        file.write_all_at(&[7; 4096], place).or_fail(path.display());
    }
}

/// Compares `text` with the file `NAME.snap` beside this one.
#[track_caller]
fn assert_snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
