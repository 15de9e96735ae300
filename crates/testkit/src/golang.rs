//! Programs in Go, for testing against the Go libraries that CDI uses.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::fail::OrFail;
use crate::tools;

/// The folder in which Debian installs the sources of Go libraries.
const GO_PATH: &str = "/usr/share/gocode";

/// A program, and the temporary folder that contains it.
type Built = (TempDir, PathBuf);

// Built once in each process that needs them.
static SNAPPY: LazyLock<Built> = LazyLock::new(|| {
    let library = Path::new(GO_PATH).join("src/github.com/golang/snappy");
    assert!(
        library.is_dir(),
        "this test needs {}: apt-get install golang-github-golang-snappy-dev",
        library.display()
    );
    build("snappy")
});
static TLS: LazyLock<Built> = LazyLock::new(|| build("tls"));

/// Builds `crates/testkit/golang/NAME`.
fn build(name: &str) -> Built {
    let folder = tempfile::tempdir().or_fail("a folder");
    let program = folder.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("golang").join(name).join("main.go");
    let built = Command::new(tools::find("go"))
        .args(["build", "-o"])
        .args([&program, &source])
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
}

/// Decodes framed snappy with the decoder of CDI's upload server (`golang/snappy`, from Debian's
/// package). Fails the test if the decoder reports an error.
pub fn undo_snappy(framed: &[u8]) -> Vec<u8> {
    tools::filter(&SNAPPY.1.to_string_lossy(), [""; 0], framed)
}

/// The path of a program that can be a TLS client or server.
pub fn tls() -> &'static Path {
    &TLS.1
}
