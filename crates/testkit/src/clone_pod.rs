//! The source pod of a clone: runs `cdi-cloner` with the environment that CDI's controller gives
//! it, in a temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::certs::{Authority, Identity};
use crate::fail::OrFail;
use crate::ports;
use crate::process::Program;
use crate::tools;

/// A pod that has not started yet.
pub struct ClonePod {
    binary: PathBuf,
    root: TempDir,
    env: Vec<(String, String)>,
    metrics: SocketAddr,
}

impl ClonePod {
    /// A pod that runs `binary`, authenticates as `client` and sends its volume to `url`, whose
    /// certificate `authority` has signed.
    pub fn new(binary: &str, authority: &Authority, client: &Identity, url: &str) -> Self {
        let root = tempfile::tempdir().or_fail("a folder");
        std::fs::create_dir(root.path().join("dev")).or_fail("dev");
        let [metrics] = ports::free();
        let pod = Self { binary: binary.into(), root, env: Vec::new(), metrics };
        let folder = pod.root.path().to_string_lossy().into_owned();
        pod.env("CDI_WORKERS_TEST_ROOT", &folder)
            .env("CDI_WORKERS_TEST_METRICS_ADDR", &metrics.to_string())
            .env("OWNER_UID", "uid")
            .env("CLIENT_KEY", &client.key_pem())
            .env("CLIENT_CERT", &client.certificate_pem)
            .env("SERVER_CA_CERT", &authority.pem())
            .env("UPLOAD_URL", url)
            .env("PREALLOCATION", "false")
    }

    /// Sets an environment variable. If it is set twice, the last value counts.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes this device (or file) the volume.
    pub fn block(self, device: &Path) -> Self {
        self.env("VOLUME_MODE", "block").env("MOUNT_POINT", &device.to_string_lossy())
    }

    /// Makes this directory the volume.
    pub fn files(self, folder: &Path) -> Self {
        self.env("VOLUME_MODE", "filesystem").env("MOUNT_POINT", &folder.to_string_lossy())
    }

    /// The cloner, without arguments, as in a pod.
    pub fn program(&self) -> Program {
        self.env
            .iter()
            .fold(Program::new(&self.binary), |program, (name, value)| program.env(name, value))
    }

    /// The termination message, if one was written.
    pub fn message(&self) -> Option<String> {
        std::fs::read_to_string(self.root.path().join("dev/termination-log")).ok()
    }

    /// The address of the metrics.
    pub fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    /// Scrapes the metrics and returns them.
    pub fn scrape(&self) -> String {
        tools::run("curl", ["-sSk", &format!("https://{}/metrics", self.metrics)])
    }
}
