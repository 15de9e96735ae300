//! VMware disks: the lookup with VMware's simulator of vSphere, and nbdkit with a stand-in for
//! VMware's library.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::RUNTIME;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::Source;
use sources::BasicCredentials;
use sources::Checkpoints;
use sources::vddk::{VddkInstallation, VddkOptions, VddkSource};
use sources::{Network, RetryPolicy};
use tempfile::TempDir;
use testkit::vsphere::{Machine, Vsphere, build_plugin};
use testkit::{certs, disk};
use tokio_util::sync::CancellationToken;

/// A single simulator for all tests, which ends with this process.
static VSPHERE: LazyLock<Vsphere> = LazyLock::new(Vsphere::start);

fn access(password: &str) -> Network {
    Network {
        credentials: BasicCredentials::new("user", password),
        patience: RetryPolicy {
            no_progress_limit: Duration::from_secs(20),
            retries: Some(0),
            contact_limit: Duration::from_secs(3),
            ..RetryPolicy::default()
        },
        ..Network::new(
            RUNTIME.handle().clone(),
            CancellationToken::new(),
            certs::distrustful_client_config().unwrap(),
        )
    }
}

/// The files of a side-car image, and a disk that the plugin serves.
struct Scene {
    folder: TempDir,
    bytes: Vec<u8>,
}

impl Scene {
    /// Creates a scene whose plugin accepts only the `expected` arguments and values.
    fn new(expected: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        build_plugin(folder.path());
        let bytes = disk::sparse_content(3, 24 << 20, 8);
        std::fs::write(folder.path().join("disk.raw"), &bytes).unwrap();
        let mut config = format!("disk={}/disk.raw\n", folder.path().display());
        for (name, value) in expected {
            config += &format!("{name}={value}\n");
        }
        std::fs::write(folder.path().join("config"), config).unwrap();
        Self { folder, bytes }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self, uuid: &str, file: &str) -> VddkOptions {
        VddkOptions {
            endpoint: VSPHERE.url().parse().unwrap(),
            uuid: uuid.to_owned(),
            backing_file: file.to_owned(),
            thumbprint: None,
            checkpoints: Checkpoints::default(),
            has_certificates: false,
            installation: VddkInstallation {
                nbdkit: "nbdkit".into(),
                keeper: None,
                library: self.path("library"),
                test_plugin: self.path("nbdkit-vddk-plugin.so"),
                config_file: self.path("config"),
            },
        }
    }
}

fn checkpoints(current: &str, previous: Option<&str>) -> Checkpoints {
    Checkpoints { current: Some(current.to_owned()), previous: previous.map(str::to_owned) }
}

fn machine(index: usize) -> &'static Machine {
    &VSPHERE.machines()[index]
}

fn open_with(options: &VddkOptions, access: &Network) -> Result<VddkSource, SourceError> {
    VddkSource::open(options, &Arc::new(access.clone()))
}

fn open(options: &VddkOptions) -> Result<VddkSource, SourceError> {
    open_with(options, &access("secret"))
}

#[track_caller]
fn refused(result: Result<VddkSource, SourceError>, reason: &str) {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains(reason), "{message}");
    assert!(!message.contains("secret"), "{message}");
}

fn read_all(source: &dyn Source) -> Vec<u8> {
    let mut body = source.open_body().unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next_chunk().unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    bytes
}

/// Returns the number of running programs whose command line contains `folder`.
fn running_in(folder: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(folder.to_str().unwrap()))
        .count()
}

#[test]
#[ignore = "server: vcsim"]
fn a_disk_is_found_and_read() {
    // The last machine is in the second data centre.
    for (index, of_instance) in [(0, true), (7, false)] {
        let machine = machine(index);
        let moref = format!("moref={}", machine.moref);
        let scene = Scene::new(&[
            ("server", "127.0.0.1"),
            ("user", "user"),
            ("password", "secret"),
            ("vm", &moref),
            ("file", &machine.disk),
        ]);
        let uuid = if of_instance { &machine.instance_uuid } else { &machine.uuid };
        let source = open(&scene.options(uuid, &machine.disk)).unwrap();
        assert_eq!(source.total_bytes(), Some(24 << 20));
        assert_eq!(source.name(), format!("{} of {uuid}", machine.disk));
        assert!(source.is_disk() && source.changed_ranges().is_none());
        assert!(read_all(&source) == scene.bytes);
        assert_eq!(source.read_range(5..4101).unwrap(), scene.bytes[5..4101]);
        let info = source.library_info();
        assert_eq!((info.version.as_str(), info.host.as_str()), ("7.0.3", "esx1.example.com"));
        assert_eq!(running_in(scene.folder.path()), 1);
        drop(source);
        assert_eq!(running_in(scene.folder.path()), 0);
    }
}

#[test]
#[ignore = "server: vcsim"]
fn a_snapshot_may_be_given_by_name_or_object() {
    let machine = machine(1);
    let scene = Scene::new(&[
        ("snapshot", &machine.snapshot),
        ("transports", "file:nbdssl:nbd"),
        ("file", &machine.disk),
    ]);
    for snapshot in ["second", &machine.snapshot] {
        let options = VddkOptions {
            checkpoints: checkpoints(snapshot, None),
            ..scene.options(&machine.instance_uuid, &machine.disk)
        };
        assert!(read_all(&open(&options).unwrap()) == scene.bytes);
    }
    let options = VddkOptions {
        checkpoints: checkpoints("third", None),
        ..scene.options(&machine.instance_uuid, &machine.disk)
    };
    refused(open(&options), "vSphere has no snapshot \"third\"");
}

#[test]
#[ignore = "server: vcsim"]
fn missing_machines_and_disks_are_named() {
    let (scene, machine) = (Scene::new(&[]), machine(2));
    let nobody = "00000000-0000-0000-0000-000000000000";
    refused(
        open(&scene.options(nobody, &machine.disk)),
        "vSphere has no machine with uuid 00000000",
    );
    refused(
        open(&scene.options(&machine.uuid, "[none] <&>.vmdk")),
        "vSphere has no disk \"[none] <&>.vmdk\" in the machine",
    );
    let options = scene.options(&machine.uuid, &machine.disk);
    refused(open_with(&options, &access("wrong")), "vSphere refuses Login: Login failure");
    let anonymous = Network { credentials: None, ..access("secret") };
    refused(open_with(&options, &anonymous), "needs a user name and a password");
    let elsewhere =
        VddkOptions { endpoint: format!("{}/nothing", VSPHERE.url()).parse().unwrap(), ..options };
    refused(open(&elsewhere), "without SOAP: is this its URL?");
}

#[test]
#[ignore = "server: vcsim"]
fn a_server_must_have_a_trusted_certificate_or_the_thumbprint() {
    let (scene, machine) = (Scene::new(&[]), machine(3));
    let options = scene.options(&machine.uuid, &machine.disk);
    let with_certificates = VddkOptions { has_certificates: true, ..options.clone() };
    let error = open(&with_certificates).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Connect, "{error}");
    let thumbprint = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33";
    let with_another = VddkOptions { thumbprint: Some(thumbprint.to_owned()), ..options };
    refused(open(&with_another), "does not have the thumbprint sha1:00112233");
}

#[test]
#[ignore = "server: vcsim"]
fn missing_files_of_the_pod_are_named() {
    let (scene, machine) = (Scene::new(&[]), machine(4));
    let options = scene.options(&machine.uuid, &machine.disk);
    let with = |installation: VddkInstallation| VddkOptions { installation, ..options.clone() };
    let installation = options.installation.clone();
    // The plugin for tests needs no library, as every test of this file shows, but nbdkit's own
    // does.
    let nothing = VddkInstallation { test_plugin: scene.path("none"), ..installation.clone() };
    refused(open(&with(nothing.clone())), "the VDDK library is missing: ");
    let no_nbdkit = VddkInstallation { nbdkit: scene.path("nbdkit"), ..installation };
    refused(open(&with(no_nbdkit)), "which reads VMware disks: no such file or directory");
    std::fs::create_dir_all(scene.path("library/lib64")).unwrap();
    refused(open(&with(nothing)), "nbdkit cannot load its plugin vddk");
}

#[test]
#[ignore = "server: vcsim"]
fn a_failure_of_nbdkit_is_reported_with_its_reason() {
    let (scene, machine) = (Scene::new(&[("server", "elsewhere")]), machine(5));
    let options = scene.options(&machine.uuid, &machine.disk);
    refused(open(&options), "the argument server is not what it should be");
    let scene = Scene::new(&[]);
    std::fs::remove_file(scene.path("disk.raw")).unwrap();
    let start = Instant::now();
    refused(open(&scene.options(&machine.uuid, &machine.disk)), "VixDiskLib_Open: no disk");
    // nbdkit is another process, whose failure must be noticed without waiting for a limit.
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(running_in(scene.folder.path()), 0);
}

#[test]
#[ignore = "server: vcsim"]
fn contradictory_checkpoints_are_refused() {
    let (scene, machine) = (Scene::new(&[]), machine(6));
    let options = scene.options(&machine.uuid, &machine.disk);
    let with = |checkpoints| VddkOptions { checkpoints, ..options.clone() };
    let alone = Checkpoints { previous: Some("first".into()), ..Checkpoints::default() };
    refused(open(&with(alone)), "previous checkpoint set without current");
    refused(
        open(&with(checkpoints("second", Some("zeroth")))),
        "vSphere has no snapshot \"zeroth\"",
    );
    refused(open(&with(checkpoints("second", Some("52 de-61/1")))), "did not track what changed");
}

#[test]
#[ignore = "server: vcsim"]
fn the_certificate_with_the_thumbprint_is_trusted() {
    let (scene, machine) = (Scene::new(&[]), machine(6));
    let options = VddkOptions {
        thumbprint: Some(VSPHERE.thumbprint().to_owned()),
        ..scene.options(&machine.uuid, &machine.disk)
    };
    assert!(read_all(&open(&options).unwrap()) == scene.bytes);
}

/// CDI's own tests of warm imports rely on this.
#[test]
#[ignore = "server: vcsim"]
fn a_simulated_disk_has_no_changes() {
    let (scene, machine) = (Scene::new(&[]), machine(7));
    let options = VddkOptions {
        checkpoints: checkpoints("second", Some("first")),
        ..scene.options(&machine.uuid, &machine.disk)
    };
    let source = open(&options).unwrap();
    assert_eq!(source.changed_ranges().map(|changes| changes.changed_bytes()), Some(0));
    assert!(read_all(&source).is_empty());
}
