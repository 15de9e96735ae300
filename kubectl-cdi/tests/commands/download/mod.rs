//! Downloads by the real program, through the port-forward of a real API server and a stand-in for
//! the kubelet, from pods that run the real cloner.

mod cuts;
mod hostile;
mod refused;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::cluster::Cluster;
use testkit::cluster::kubelet::Kubelet;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::{Program, Running};
use testkit::tools;
use testkit::upload_proxy::beside;

use crate::BINARY;
use crate::upload::{api, last_event};

const MIB: u64 = 1 << 20;

/// Longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(120);

/// A namespace with a node.
struct Scene {
    namespace: String,
    kubelet: Kubelet,
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("download{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster().create_namespace(&namespace);
        Self {
            kubelet: Kubelet::start(cluster(), &namespace, &beside(BINARY, "cdi-cloner")),
            namespace,
            folder: tempfile::tempdir().or_fail("a folder"),
        }
    }

    /// Makes a claim `disk` with this content, whose zeros are holes.
    fn claim(&self, mode: &str, content: &[u8]) -> PathBuf {
        let path = self.path("volume");
        disk::write_sparse(&path, content);
        self.kubelet.create_claim("disk", mode, &path);
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, source: &str, file: &str) -> Program {
        self.program_as(cluster().administrator(), source, file)
    }

    fn program_as(&self, kubeconfig: PathBuf, source: &str, file: &str) -> Program {
        Program::new(BINARY)
            .args(["download", source])
            .arg(self.path(file))
            .args(["--namespace", &self.namespace, "--image", "cloner", "--kubeconfig"])
            .arg(kubeconfig)
            .env("HOME", self.folder.path())
    }

    /// The download of the claim `disk` into the file `copy`.
    fn download(&self) -> Program {
        self.program("pvc/disk", "copy").args(["--progress", "json", "--timeout", "1m"])
    }

    /// The download of the claim `disk` to stdout, which is the file `piped`.
    fn download_to_pipe(&self, format: &str) -> Program {
        let line = r#"exec "$0" "$@" > piped"#;
        Program::new("/bin/sh")
            .args(["-c", &format!("cd {} && {line}", self.folder.path().display()), BINARY])
            .args(["download", "pvc/disk", "-", "--format", format, "--image", "cloner"])
            .args(["--namespace", &self.namespace, "--kubeconfig"])
            .arg(cluster().administrator())
    }

    /// Waits until `mark` bytes were forwarded. Fails the test if the program ends first.
    fn wait_until_forwarded(&self, running: &Running, mark: u64) {
        let begun = Instant::now();
        while self.kubelet.forwarded() < mark {
            let forwarded = self.kubelet.forwarded();
            let is_over = running.has_ended() || begun.elapsed() >= PATIENCE;
            assert!(!is_over, "{forwarded} of {mark}: {}", running.stderr_so_far());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that the namespace has no pods, once the kubelet has removed them.
    #[track_caller]
    fn assert_no_pods(&self) {
        let complaint = || self.kubelet.pods().join(", ");
        testkit::wait::until(complaint, || self.kubelet.pods().is_empty());
    }

    /// Returns the disk in the complete file `name`.
    fn decode(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        if !name.ends_with("qcow2") {
            return tools::filter("zstd", ["-dcq"], &fs::read(path).or_fail(name));
        }
        tools::run("qemu-img", ["check".as_ref(), path.as_os_str()]);
        let raw = self.path("raw");
        assert!(tools::qemu_converts("qcow2", &path, &raw), "{name}");
        fs::read(raw).or_fail("the raw disk")
    }

    /// Checks that `copy` is complete, and that nothing else is left.
    #[track_caller]
    fn assert_complete(&self, expected: &[u8]) {
        assert!(fs::read(self.path("copy")).or_fail("the copy") == expected, "the copy differs");
        assert!(!self.path("copy.partial").exists());
        self.assert_no_pods();
    }
}

fn cluster() -> &'static Cluster {
    &api().cluster
}

/// Returns how many bytes are in blocks that are not zero.
fn data_bytes(content: &[u8]) -> u64 {
    let blocks = content.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0));
    blocks.count() as u64 * 4096
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_disk_is_downloaded_from_both_kinds_of_volumes_without_its_zeros() {
    for mode in ["Filesystem", "Block"] {
        let scene = Scene::new();
        let mut content = vec![0; 256 << 20];
        for island in content.chunks_mut(4 << 20) {
            island[..1 << 20].copy_from_slice(&disk::content(21, MIB));
        }
        content.extend_from_slice(b"the last sector");
        scene.claim(mode, &content);
        let finished = scene.download().start().wait();
        finished.assert_success(mode);
        scene.assert_complete(&content);
        let event = last_event(&finished);
        assert_eq!(event["event"], "done", "{event}");
        assert_eq!(event["disk_bytes"], content.len() as u64, "{event}");
        let data = data_bytes(&content);
        let received = event["received_bytes"].as_u64().or_fail("bytes");
        assert!(received < data / 100 * 102, "{received} of {data}");
        let blocks = fs::metadata(scene.path("copy")).or_fail("the copy").blocks() * 512;
        assert!(blocks < data / 100 * 102, "{blocks} of {data}");
        let made = scene.kubelet.made();
        assert_eq!(made.len(), 1);
        assert_eq!(
            made[0]["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] == true,
            mode == "Block"
        );
        assert_eq!(made[0]["metadata"]["ownerReferences"][0]["name"], "disk");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_disk_is_written_compressed_or_to_a_pipe() {
    let scene = Scene::new();
    let content = disk::sparse_content(22, 64 * MIB, 4);
    scene.claim("Filesystem", &content);
    scene.program("pvc/disk", "copy.raw.zst").start().wait().assert_success("a file");
    scene.program("pvc/disk", "copy.qcow2").start().wait().assert_success("an image");
    let zlib = ["--format", "qcow2", "--compression", "zlib"];
    let finished = scene.program("pvc/disk", "zlib-qcow2").args(zlib).start().wait();
    finished.assert_success("a compressed image");
    scene.download_to_pipe("raw.zst").start().wait().assert_success("a compressed pipe");
    for (name, most) in [("copy.raw.zst", 4), ("piped", 4), ("copy.qcow2", 2), ("zlib-qcow2", 4)] {
        let written = fs::metadata(scene.path(name)).or_fail(name).len();
        assert!(written < content.len() as u64 / most, "{name}: {written}");
        assert!(scene.decode(name) == content, "{name} differs");
    }
    scene.download_to_pipe("raw").start().wait().assert_success("a pipe");
    assert!(fs::read(scene.path("piped")).or_fail("the pipe") == content, "the pipe differs");
    scene.assert_no_pods();
}

#[test]
#[ignore = "server: Kubernetes"]
fn empty_and_tiny_disks_are_downloaded() {
    for content in [&b""[..], b"x", &[0; 4097]] {
        let scene = Scene::new();
        scene.claim("Filesystem", content);
        scene.download().start().wait().assert_success("a tiny disk");
        scene.assert_complete(content);
        scene.program("pvc/disk", "copy.qcow2").start().wait().assert_success("a tiny image");
        assert!(scene.decode("copy.qcow2").starts_with(content));
    }
}
