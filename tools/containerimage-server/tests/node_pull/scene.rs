//! A stand-in for a container of a user's image.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::process::{Program, Running};
use testkit::tools;
use testkit::wait;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_cdi-containerimage-server");

/// A folder with `disk` and `shared`, and a port.
pub(crate) struct Scene {
    folder: TempDir,
    pub(crate) address: SocketAddr,
}

impl Scene {
    /// A scene with these files in the image's `/disk`.
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        for name in ["disk", "shared"] {
            std::fs::create_dir(folder.path().join(name)).or_fail(name);
        }
        for (name, content) in files {
            std::fs::write(folder.path().join("disk").join(name), content).or_fail(name);
        }
        let [address] = testkit::ports::free();
        Self { folder, address }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn ready(&self) -> PathBuf {
        self.path("shared/ready")
    }

    pub(crate) fn done(&self) -> PathBuf {
        self.path("shared/done")
    }

    /// The server with the flags that CDI's controller sets.
    pub(crate) fn program(&self) -> Program {
        Program::new(BINARY)
            .args(["-p".into(), self.address.port().to_string()])
            .arg("-image-dir")
            .arg(self.path("disk"))
            .arg("-ready-file")
            .arg(self.ready())
            .arg("-done-file")
            .arg(self.done())
            .env("CDI_WORKERS_TEST_ROOT", self.folder.path())
    }

    /// Starts the server and waits for its ready file.
    pub(crate) fn start(&self) -> Running {
        self.begin(self.program())
    }

    pub(crate) fn begin(&self, program: Program) -> Running {
        let running = program.start();
        wait_until("the ready file", || self.ready().exists());
        running
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Runs curl with these arguments. Returns the head and the body of the response.
    pub(crate) fn curl(&self, arguments: &[&str], path: &str) -> (String, Vec<u8>) {
        let head = self.path("head");
        let body = self.path("body");
        std::fs::write(&body, "").or_fail("a file for the body");
        let dump = [head.to_string_lossy(), body.to_string_lossy()];
        let url = self.url(path);
        let words = ["--silent", "--show-error", "--path-as-is", "-D", &dump[0], "-o", &dump[1]];
        tools::run("curl", words.iter().chain(arguments).chain([&url.as_str()]));
        let head = std::fs::read_to_string(head).or_fail("the head");
        (head.to_lowercase(), std::fs::read(body).or_fail("the body"))
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    wait::until(|| what, is_so);
}

/// Asserts that a file does not exist.
#[track_caller]
pub(crate) fn assert_gone(file: &Path) {
    assert!(!file.exists(), "{} is there", file.display());
}
