//! oVirt disks: the whole program against an engine in this process. The images come from the
//! engine itself or from the real daemon.

mod adversary;
mod body;
mod deltas;
mod endings;
mod faults;
mod hostile;
mod stages;
mod whole;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::TempDir;
use testkit::disk;
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};
use testkit::process::{Finished, Program};

const MIB: u64 = 1 << 20;

/// A folder for one import, with the password in a file.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), PASSWORD).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn target(&self) -> PathBuf {
        self.path("disk.img")
    }

    /// `cdi-importer COMMAND` with a user name and a password.
    fn program(&self, command: &str) -> Program {
        let program = Program::new(crate::BINARY);
        let program = program.args([command, "--user", USER, "--password-file"]);
        program.arg(self.path("password"))
    }

    /// An import of the engine's disk.
    fn import(&self, engine: &Engine) -> Program {
        self.program("import").arg(address(engine)).arg(self.target())
    }

    /// Asserts that the import succeeds and makes this disk.
    #[track_caller]
    fn import_equals(&self, engine: &Engine, raw: &[u8]) {
        self.import(engine).run().assert_success("import");
        self.assert_disk(raw);
    }

    #[track_caller]
    fn assert_disk(&self, raw: &[u8]) {
        let expected = self.path("expected");
        std::fs::write(&expected, raw).unwrap();
        let length = raw.len() as u64;
        assert_eq!(self.target().metadata().unwrap().len(), length);
        disk::assert_same(&self.target(), &expected, length, "import");
    }

    /// Asserts that the program fails with exit code 3 and this sentence, and leaves no disk.
    #[track_caller]
    fn assert_refused(&self, program: Program, sentence: &str) -> Finished {
        let finished = program.run();
        finished.assert_failure(3, sentence);
        assert!(!finished.crashed() && !self.target().exists(), "{}", finished.stderr);
        assert!(!finished.stderr.contains(PASSWORD), "the password was shown");
        finished
    }
}

/// The SOURCE argument for the disk of the engine.
fn address(engine: &Engine) -> String {
    format!("ovirt+{}/disks/{DISK_ID}", engine.api_url())
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

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
