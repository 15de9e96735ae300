//! The whole program, as a command and in a pod: the disk is the one that `qemu-img` makes.

use std::path::{Path, PathBuf};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::Program;
use testkit::tools;

use super::*;

/// A plan in which a connection breaks, the store is busy, and another connection breaks.
fn breaking() -> Plan {
    Plan::of(vec![Fault::Cut(1_000_000), refusal(503, "SlowDown", ""), Fault::Cut(1_000_000)])
}

/// An image, and a folder for its imports.
struct Scene {
    folder: tempfile::TempDir,
    image: Image,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
        let image = spec.build(folder.path(), "image");
        Self { folder, image }
    }

    /// Stores the image in three forms in a folder of the bucket. Returns their keys.
    fn store(&self, store: &Store, folder: &str) -> [String; 3] {
        let raw = std::fs::read(&self.image.raw).or_fail("raw");
        let qcow2 = std::fs::read(&self.image.qcow2).or_fail("qcow2");
        let gz = tools::filter("gzip", ["-c", "-1"], &qcow2);
        [("disk.raw", &raw), ("disk.qcow2", &qcow2), ("disk.qcow2.gz", &gz)].map(
            |(name, content)| {
                let key = format!("{folder}/{name}");
                store.put(&key, content);
                key
            },
        )
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).or_fail(name);
        path
    }

    fn import(&self, url: &str) -> Program {
        Program::new(crate::BINARY).args(["import", url]).arg(self.disk())
    }

    #[track_caller]
    fn assert_imports(&self, program: Program, case: &str) {
        let finished = program.run();
        finished.assert_success(case);
        self.assert_disk(&self.disk(), case);
    }

    #[track_caller]
    fn assert_disk(&self, path: &Path, case: &str) {
        disk::assert_same(path, &self.image.raw, self.image.virtual_size, case);
        std::fs::remove_file(path).or_fail(case);
    }
}

#[test]
#[ignore = "server: object stores"]
fn disks_are_imported_from_s3_despite_faults() {
    let scene = Scene::new();
    let secret = scene.write("secret", SECRET_KEY);
    for store in [&*S3S, &MOTO] {
        for key in scene.store(store, "command-line") {
            let gateway = Gateway::start(store.address(), breaking()).unwrap();
            let program = scene
                .import(&format!("s3://{BUCKET}/{key}"))
                .env("AWS_ENDPOINT_URL", gateway.url(""))
                .args(["--user", ACCESS_KEY, "--password-file"])
                .arg(&secret);
            scene.assert_imports(program, &format!("{:?} {key}", store.kind()));
            assert!(gateway.requests().len() >= 3, "{key}: nothing broke");
        }
    }
}

#[test]
#[ignore = "server: object stores"]
fn disks_are_imported_from_google_despite_faults() {
    let scene = Scene::new();
    for key in scene.store(&GCS, "command-line") {
        let gateway = Gateway::start(GCS.address(), breaking()).unwrap();
        let program = scene
            .import(&format!("gs://{BUCKET}/{key}"))
            .env("STORAGE_EMULATOR_HOST", gateway.address().to_string())
            .arg("--connections=4");
        scene.assert_imports(program, &key);
    }
}

/// The importer in a pod whose file system is `folder`.
fn pod(folder: &Path, kind: &str, endpoint: &str, keys: &[(&str, &str)]) -> Program {
    for name in ["data", "dev"] {
        std::fs::create_dir_all(folder.join(name)).or_fail(name);
    }
    let basic = [
        ("CDI_WORKERS_TEST_ROOT", folder.to_str().or_fail("a path of ASCII")),
        ("CDI_WORKERS_TEST_METRICS_ADDR", "127.0.0.1:0"),
        ("IMPORTER_CONTENTTYPE", "kubevirt"),
        ("IMPORTER_SOURCE", kind),
        ("IMPORTER_ENDPOINT", endpoint),
        ("OWNER_UID", "uid"),
        ("PREALLOCATION", "false"),
        ("FILESYSTEM_OVERHEAD", "0.06"),
        ("INSECURE_TLS", "false"),
    ];
    let program = Program::new(crate::BINARY);
    basic.iter().chain(keys).fold(program, |program, (name, value)| program.env(name, *value))
}

const KEYS: [(&str, &str); 2] =
    [("IMPORTER_ACCESS_KEY_ID", ACCESS_KEY), ("IMPORTER_SECRET_KEY", SECRET_KEY)];

#[test]
#[ignore = "server: object stores"]
fn pods_import_from_s3_and_google() {
    let scene = Scene::new();
    for (store, kind, keys) in [(&*S3S, "s3", &KEYS[..]), (&GCS, "gcs", &[])] {
        let [_, key, _] = scene.store(store, "pod");
        let endpoint = format!("http://{}/{BUCKET}/{key}", store.address());
        let folder = tempfile::tempdir().or_fail("a folder");
        let finished = pod(folder.path(), kind, &endpoint, keys).run();
        finished.assert_success(kind);
        scene.assert_disk(&folder.path().join("data/disk.img"), kind);
    }
}

#[test]
#[ignore = "server: object stores"]
fn a_pod_reports_the_error_of_the_store() {
    let endpoint = format!("http://{}/{BUCKET}/none", S3S.address());
    let folder = tempfile::tempdir().or_fail("a folder");
    let finished = pod(folder.path(), "s3", &endpoint, &KEYS).run();
    let message =
        std::fs::read_to_string(folder.path().join("dev/termination-log")).or_fail("a message");
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    let expected = format!(
        "Unable to connect to s3 data source: could not get s3 object: \"{BUCKET}/none\": NoSuchKey"
    );
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
#[ignore = "server: object stores"]
fn damage_in_transit_leaves_no_disk() {
    let scene = Scene::new();
    let keys = scene.store(&GCS, "damaged");
    for key in keys {
        // A change in the data, which neither the format nor gzip is sure to reveal.
        let gateway =
            Gateway::start(GCS.address(), Plan::of(vec![Fault::Corrupt(700_000)])).unwrap();
        let finished = scene
            .import(&format!("gs://{BUCKET}/{key}"))
            .env("STORAGE_EMULATOR_HOST", gateway.address().to_string())
            .run();
        assert_ne!(finished.code(), 0, "{key}");
        assert!(!finished.crashed() && !scene.disk().exists(), "{key}: {}", finished.stderr);
        if key.ends_with("raw") {
            finished.assert_failure(3, "the received bytes have crc32c:");
        }
    }
}
