//! The folder of an import, and what tests of all sources do and assert there.

use std::path::PathBuf;

use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};

pub(crate) const MIB: u64 = 1 << 20;

/// Exit code of a usage error.
pub(crate) const USAGE: i32 = 2;

/// Exit code of a source that failed.
pub(crate) const SOURCE_FAILED: i32 = 3;

/// Exit code of an image that is corrupt or refused.
pub(crate) const IMAGE_REFUSED: i32 = 4;

/// Exit code of an image whose checksum or signature is wrong.
pub(crate) const UNTRUSTED: i32 = 6;

/// Most bytes of messages about a hostile server.
const MAX_WORDS_BYTES: usize = 4096;

/// A folder with the target and other files of an import.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().or_fail("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.path("disk.img")
    }

    /// Writes a file, and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().or_fail(name)).or_fail(name);
        std::fs::write(&path, content).or_fail(name);
        path.display().to_string()
    }

    /// `import` of `source` to the target.
    pub(crate) fn import(&self, source: &str) -> Program {
        Program::new(crate::BINARY).args(["import", source]).arg(self.target())
    }

    /// The options with a user and the password.
    pub(crate) fn as_user(&self, user: &str, password: &str) -> [String; 4] {
        let file = self.write("password", password);
        ["--user".to_owned(), user.to_owned(), "--password-file".to_owned(), file]
    }

    /// The options that trust `authority` alone.
    pub(crate) fn trusting(&self, authority: &Authority) -> [String; 2] {
        self.write("certs/ca.crt", authority.pem());
        ["--cacert".to_owned(), self.path("certs").display().to_string()]
    }

    /// Asserts that `program` makes a disk of these bytes, and removes the disk.
    #[track_caller]
    pub(crate) fn assert_imports(&self, program: Program, expected: &[u8], case: &str) -> Finished {
        let finished = program.run();
        finished.assert_success(case);
        let disk = std::fs::read(self.target()).or_fail(case);
        assert!(disk == expected, "{case}: the disk differs\n{}", finished.stderr);
        std::fs::remove_file(self.target()).or_fail(case);
        finished
    }

    /// Asserts that `program` ends with this exit code and this text, and leaves no target.
    #[track_caller]
    pub(crate) fn assert_refused(&self, program: Program, code: i32, text: &str) -> Finished {
        let finished = program.run();
        finished.assert_failure(code, text);
        assert!(!finished.crashed(), "{}", finished.stderr);
        assert!(!self.target().exists(), "{text}: a target was left behind");
        finished
    }
}

/// Asserts that the messages about a hostile server are short, and show no secret and no character
/// that could deceive the reader.
#[track_caller]
pub(crate) fn assert_harmless(finished: &Finished, secrets: &[&str]) {
    let words = &finished.stderr;
    assert!(!finished.crashed(), "{words}");
    assert!(words.len() <= MAX_WORDS_BYTES, "{} bytes of words", words.len());
    for char in ['\u{1b}', '\u{202e}', '\u{2028}', '\u{200b}'] {
        assert!(!words.contains(char), "{char:?} in {words}");
    }
    for secret in secrets {
        assert!(!words.contains(secret), "{secret}: {words}");
    }
}

/// Text that clears a terminal, reverses what follows, and is longer than `length` bytes.
pub(crate) fn loud(length: usize) -> String {
    format!("\u{1b}[2J\u{202e}\u{2028}begin{}", "x".repeat(length))
}
