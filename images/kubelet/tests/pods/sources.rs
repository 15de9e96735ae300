//! The sources of CDI's tests, imported to files and to devices, with and without preallocation.

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::volumes::Claim;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::nginx::Nginx;
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, MIB, SERVER, assert_allocation, assert_disk, disk_image, import, serve_plainly,
    success, url,
};

/// Servers with every kind of object, and the disks that these must become.
struct Sources {
    network: Network,
    folder: tempfile::TempDir,
    _nginx: Nginx,
    _registry: DockerRegistry,
    http: String,
    docker: String,
}

impl Sources {
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let image = disk_image(folder.path());
        let file = |name: &str| folder.path().join(name);
        std::fs::copy(disk::iso(), file("disk.iso")).or_fail("an ISO image");
        let tar = oci::tar(&[("one.txt", &disk::content(1, MIB)), ("folder/two.txt", b"2")]);
        std::fs::write(file("disk.tar"), &tar).or_fail("a tar");
        let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
        let container_disk =
            |content: &[u8]| [oci::Image::of_disk(content, oci::Compression::Gzip)];
        let registry = DockerRegistry::start_with(
            Setup::default(),
            &[("qcow2:1", &container_disk(&qcow2)), ("tar:1", &container_disk(&tar))],
        );
        let network = Network::new();
        network.open(registry.address());
        let nginx = serve_plainly(&network, folder.path(), "root .;");
        Self {
            http: url("http", nginx.address(), ""),
            docker: url("docker", registry.address(), ""),
            network,
            folder,
            _nginx: nginx,
            _registry: registry,
        }
    }

    /// Imports the object `name` from the server of this kind, and compares every byte with the
    /// file `expected`.
    fn import(&self, claim: &Claim, source: (&str, &str), expected: &str, preallocate: bool) {
        let (kind, name) = source;
        let server = if kind == "http" { &self.http } else { &self.docker };
        let url = format!("{server}{name}");
        let word = if preallocate { "true" } else { "false" };
        let pod = Import {
            env: &[
                ("IMPORTER_SOURCE", kind),
                ("IMPORTER_ENDPOINT", &url),
                ("INSECURE_TLS", "true"),
                ("PREALLOCATION", word),
            ],
            hosts: &[SERVER],
            ..Import::default()
        };
        let ended = import(&self.network, claim, &pod, &[]);
        let case = format!("{url}, preallocation {word}: {}", ended.log);
        assert_eq!(ended.import(), success("Import Complete", preallocate), "{case}");
        let synced = if claim.is_block() { "/dev/cdi-block-volume" } else { "/data/disk.img" };
        let line = format!("Successfully completed fsync({synced}) syscall");
        assert!(ended.log.contains(&line), "{case}");
        let expected = self.folder.path().join(expected);
        let bytes = expected.metadata().or_fail(expected.display()).len();
        assert_disk(claim, &expected, bytes);
        assert_allocation(claim, preallocate);
    }

    /// Imports to a file and to a device, with preallocation.
    fn import_preallocated(&self, source: (&str, &str), expected: &str) {
        self.import(&Claim::filesystem(CLAIM_BYTES), source, expected, true);
        self.import(&Claim::block(CLAIM_BYTES), source, expected, true);
    }

    /// Imports to a device without preallocation. Other tests cover files without preallocation.
    fn import_to_device(&self, source: (&str, &str), expected: &str) {
        self.import(&Claim::block(CLAIM_BYTES), source, expected, false);
    }
}

#[test]
#[ignore = "server: docker-registry, nginx"]
fn every_kind_of_object_is_imported_over_http_to_files_and_devices() {
    let sources = Sources::new();
    sources.import_preallocated(("http", "image.qcow2"), "image.raw");
    sources.import_to_device(("http", "image.qcow2"), "image.raw");
    sources.import_preallocated(("http", "image.raw"), "image.raw");
    sources.import_to_device(("http", "image.raw"), "image.raw");
    sources.import_preallocated(("http", "disk.iso"), "disk.iso");
}

#[test]
#[ignore = "server: docker-registry, nginx"]
fn a_container_disk_is_imported_to_files_and_devices() {
    let sources = Sources::new();
    sources.import_preallocated(("registry", "qcow2:1"), "image.raw");
    sources.import_to_device(("registry", "qcow2:1"), "image.raw");
}

#[test]
#[ignore = "server: docker-registry, nginx"]
fn a_tar_imported_as_a_disk_is_not_unpacked() {
    let sources = Sources::new();
    for source in [("http", "disk.tar"), ("registry", "tar:1")] {
        sources.import_preallocated(source, "disk.tar");
        sources.import(&Claim::filesystem(CLAIM_BYTES), source, "disk.tar", false);
    }
}
