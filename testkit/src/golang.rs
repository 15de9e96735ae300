//! The decoder of CDI's upload server: `golang/snappy`, from Debian's package.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::fail::OrFail;
use crate::tools;

/// The folder where Debian keeps the sources of Go libraries.
const GO_PATH: &str = "/usr/share/gocode";

/// The program, built once for each process that needs it.
static PROGRAM: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let library = Path::new(GO_PATH).join("src/github.com/golang/snappy");
    assert!(
        library.is_dir(),
        "this test needs {}: apt-get install golang-github-golang-snappy-dev",
        library.display()
    );
    let folder = tempfile::tempdir().or_fail("a folder");
    let program = folder.path().join("undo-snappy");
    let built = Command::new(tools::find("go"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/snappy/main.go"))
        .envs([
            ("GO111MODULE", "off"),
            ("GOPATH", GO_PATH),
            ("GOFLAGS", ""),
            ("GOTOOLCHAIN", "local"),
        ])
        .env("GOCACHE", folder.path().join("cache"))
        .stdin(Stdio::null())
        .status()
        .or_fail("go build");
    assert!(built.success(), "go build: {built}");
    (folder, program)
});

/// The bytes inside of framed snappy. Fails the test if the library does not like it.
pub fn undo(framed: &[u8]) -> Vec<u8> {
    tools::filter(&PROGRAM.1.to_string_lossy(), [""; 0], framed)
}
