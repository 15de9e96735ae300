//! oVirt disks: the whole program against an engine in this process. The images come from the
//! engine itself or from the real daemon.

mod body;
mod deltas;
mod endings;
mod faults;
mod hostile;
mod stages;
mod whole;

use bytes::Bytes;
use testkit::disk;
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};
use testkit::process::{Finished, Program};

use crate::place::{MIB, Place, SOURCE_FAILED};

/// The SOURCE argument for the disk of the engine.
fn address(engine: &Engine) -> String {
    format!("ovirt+{}/disks/{DISK_ID}", engine.api_url())
}

/// An import of the engine's disk.
fn import(place: &Place, engine: &Engine) -> Program {
    place.import(&address(engine)).args(place.as_user(USER, PASSWORD))
}

/// Asserts that an import of the engine's disk makes this disk.
#[track_caller]
fn assert_imports(engine: &Engine, raw: &[u8], options: &[&str]) -> Finished {
    let place = Place::new();
    place.assert_imports(import(&place, engine).args(options), raw, "import")
}

/// Asserts that an import of the engine's disk fails with this sentence, and shows no password.
#[track_caller]
fn assert_refused(engine: &Engine, options: &[&str], sentence: &str) {
    let place = Place::new();
    let program = import(&place, engine).args(options);
    let finished = place.assert_refused(program, SOURCE_FAILED, sentence);
    assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
}

/// The script of an engine whose disk has these bytes.
fn raw_disk(raw: impl Into<Bytes>) -> Script {
    let raw = raw.into();
    Script::new(Contents { raw, cow: Bytes::new() })
}

/// A disk with data here and there, whose size is not a whole number of MiB.
fn sparse(seed: u64) -> Vec<u8> {
    disk::sparse_content(seed, 12 * MIB + 7 * 512, 8)
}

/// Asserts that all transfers ended in `phase`, that the session is closed, and nothing leaked.
#[track_caller]
fn assert_ended(engine: &Engine, phase: &str) {
    let transfers = engine.transfers();
    assert!(
        transfers.iter().all(|transfer| transfer.phase == phase) && !transfers.is_empty(),
        "{transfers:?}"
    );
    assert!(engine.is_logged_out(), "still logged in: {:?}", engine.calls());
    assert!(!engine.leaked(), "the image server was told a secret of the engine");
}
