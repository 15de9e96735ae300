//! What CDI's controllers and scripts see of the source pod of a clone: variables, flags,
//! requests, messages, exit codes and metrics.

mod failures;
mod requests;
mod running;
mod startup;

use std::fs;
use std::path::PathBuf;

use crate::BINARY;
use tempfile::TempDir;
use testkit::certs::{Authority, Identity, KeyKind};
use testkit::clone_pod::ClonePod;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Finished;
use testkit::upstream::{Script, Upstream};

const MIB: u64 = 1 << 20;

/// Exit code of klog's `Fatal`.
const FATAL: i32 = 255;

/// A volume, and an upload server that follows scripts.
struct Scene {
    folder: TempDir,
    authority: Authority,
    client: Identity,
    upstream: Upstream,
}

impl Scene {
    /// The first of `scripts` answers the HEAD request that asks for the supported encodings.
    fn new(scripts: Vec<Script>) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let authority = Authority::new().or_fail("an authority");
        let client = authority.client("source/pvc-target/pvc", KeyKind::Ecdsa).or_fail("a client");
        let scene =
            Self { upstream: Upstream::start(&authority, &[], scripts), folder, authority, client };
        scene.fill(3);
        scene
    }

    /// Fills the disk with `mib` MiB of data, none of which is zero.
    fn fill(&self, mib: usize) {
        let bytes = disk::content(1, MIB).repeat(mib);
        fs::write(self.disk(), bytes).or_fail("a disk");
    }

    /// A scene with upstream's server: it announces no encodings, and then follows `script`.
    fn of_cdi(script: Script) -> Self {
        Self::new(vec![Script::status(200, ""), script])
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn url(&self) -> String {
        format!("https://{}/v1beta1/upload", self.upstream.address())
    }

    fn pod(&self) -> ClonePod {
        ClonePod::new(BINARY, &self.authority, &self.client, &self.url())
    }
}

fn start(pod: &ClonePod) -> Finished {
    pod.program().run()
}
