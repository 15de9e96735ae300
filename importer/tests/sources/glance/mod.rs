//! Images of OpenStack: the whole program against a scripted cloud. The tests that all sources
//! share are in `tests/sources/contract`.

mod access;
mod faults;
mod hostile;
mod trust;

use std::path::PathBuf;

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::openstack::script::{CREDENTIAL, Cloud, OWN_TOKEN, PASSWORD, USER};
use testkit::process::{Finished, Program};

const MIB: u64 = 1 << 20;

/// Most bytes of messages about it.
const MAX_WORDS_BYTES: usize = 4096;

/// The usual credentials: a user in a domain, and a project.
const ACCESS: [(&str, &str); 4] = [
    ("OS_USERNAME", USER),
    ("OS_PASSWORD", PASSWORD),
    ("OS_PROJECT_NAME", "disks"),
    ("OS_DEFAULT_DOMAIN", "default"),
];

/// A folder for one import.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().or_fail("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn target(&self) -> PathBuf {
        self.path("disk.img")
    }

    fn import_with(&self, source: &str, access: &[(&str, &str)]) -> Program {
        let program = Program::new(crate::BINARY).args(["import", source]);
        let program = program.arg(self.target());
        access.iter().fold(program, |program, (name, value)| program.env(name, *value))
    }

    fn import(&self, cloud: &Cloud) -> Program {
        self.import_with(&cloud.source(), &ACCESS)
    }

    #[track_caller]
    fn assert_disk(&self, raw: &[u8]) {
        assert!(std::fs::read(self.target()).unwrap() == raw, "the disk differs");
    }

    /// Asserts that the import fails with exit code 3 and this sentence, shows no secret, takes
    /// bounded memory, and leaves no disk.
    #[track_caller]
    fn assert_refused(&self, program: Program, sentence: &str) -> Finished {
        let finished = program.run();
        finished.assert_failure(3, sentence);
        let words = &finished.stderr;
        assert!(!finished.crashed() && !self.target().exists(), "{words}");
        assert!(words.len() < MAX_WORDS_BYTES, "{} bytes of words", words.len());
        for secret in [PASSWORD, CREDENTIAL, OWN_TOKEN, "token-1"] {
            assert!(!words.contains(secret), "{secret}: {words}");
        }
        for char in ['\u{1b}', '\u{202e}', '\u{2028}'] {
            assert!(!words.contains(char), "{char:?}: {words}");
        }
        finished
    }
}
