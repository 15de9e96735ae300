//! Clone pods: a source pod reads one claim and sends it to the upload pod of another claim.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};

use kubelet::controller::{self, OWNER};
use kubelet::network::Network;
use kubelet::pod::{self, RunningPod};
use kubelet::scrape::PORT;
use kubelet::state::Verdict;
use kubelet::volumes::{Claim, Objects, QEMU};
use testkit::disk;
use testkit::fail::OrFail;

use super::scene::{CLAIM_BYTES, Certificates, MIB, assert_disk, with_claim};

const SOURCE: &str = "cdi-clone-source";

/// Longer than X.520 allows for a common name, as happens in clusters.
const CLIENT: &str = "a-namespace-with-a-long-name/a-claim-with-a-long-name-another-namespace/another-claim-with-a-long-name";
const SERVICE: &str = "cdi-upload-target.ns.svc";

/// The ready upload pod of a clone, and the certificates for its source.
struct Target<'a> {
    server: RunningPod<'a>,
    certificates: Certificates,
}

impl<'a> Target<'a> {
    fn start(network: &'a Network, claim: &Claim, preallocate: bool) -> Self {
        let certificates = Certificates::new(SERVICE, CLIENT);
        let pod = controller::upload_server(
            claim,
            "server",
            CLIENT,
            &[("PREALLOCATION", word(preallocate))],
        );
        let objects = Objects {
            files: [("server", certificates.server_secret())].into(),
            ..with_claim(claim)
        };
        let server = pod::start(network, &pod, &objects);
        server.wait_until_ready();
        Self { server, certificates }
    }

    /// Starts the source pod for `claim`.
    fn clone_from(&self, network: &'a Network, claim: &Claim, preallocate: bool) -> RunningPod<'a> {
        let url = format!("https://{SERVICE}:{PORT}/v1beta1/upload");
        let hosts = [(SERVICE, self.server.address())];
        source_pod(network, claim, &self.certificates, &url, preallocate, &hosts)
    }
}

fn source_pod<'a>(
    network: &'a Network,
    claim: &Claim,
    certificates: &Certificates,
    url: &str,
    preallocate: bool,
    hosts: &[controller::Host<'_>],
) -> RunningPod<'a> {
    let authority = certificates.authority.pem();
    let pod = controller::clone_source(claim, "client", &authority, url, preallocate, hosts);
    let objects =
        Objects { files: [("client", certificates.client_secret())].into(), ..with_claim(claim) };
    pod::start(network, &pod, &objects)
}

fn word(preallocate: bool) -> &'static str {
    if preallocate { "true" } else { "false" }
}

/// Clones `source` to `target`. Fails the test unless both pods end as CDI's controllers expect.
#[track_caller]
fn clone(source: &Claim, target: &Claim, preallocate: bool) {
    let network = Network::new();
    let mut pods = Target::start(&network, target, preallocate);
    let ended = pods.clone_from(&network, source, preallocate).wait(SOURCE);
    assert_eq!(ended.code, 0, "{}", ended.log);
    // The message is plain text. For a preallocated clone CDI requires exactly these words
    // (contract §4.4).
    let message =
        if preallocate { "Clone Complete, Preallocation applied" } else { "Clone Complete" };
    assert_eq!(ended.message, message);
    let ended = pods.server.wait("cdi-upload-server");
    let verdict = ended.upload();
    let Verdict::Succeeded { message, preallocated, .. } = &verdict else {
        panic!("{verdict:?}: {}", ended.log)
    };
    assert_eq!(message, "Clone Complete");
    // The upload server reports preallocation always for clones between files, and never for
    // others (contract §2.7). CDI's controller relies on the source's message instead.
    let files = !source.is_block() && !target.is_block();
    assert_eq!(*preallocated, files, "{}", ended.log);
}

/// Makes a claim of `bytes`: a device or a file system.
fn claim(block: bool, bytes: u64) -> Claim {
    if block { Claim::block(bytes) } else { Claim::filesystem(bytes) }
}

/// Makes a claim of [`CLAIM_BYTES`] that contains the disk `content`.
fn source(block: bool, content: &[u8]) -> Claim {
    let claim = claim(block, CLAIM_BYTES);
    if block {
        let device = File::options().write(true).open(claim.path()).or_fail("a device");
        device.write_all_at(content, 0).or_fail("a device");
        device.sync_all().or_fail("a device");
    } else {
        disk::write_sparse(&claim.disk(), content);
        std::fs::set_permissions(claim.disk(), Permissions::from_mode(0o660)).or_fail("a disk");
        chown(claim.disk(), Some(QEMU), Some(QEMU)).or_fail("a disk");
    }
    claim
}

/// A disk of which an eighth is data.
fn sparse_disk() -> Vec<u8> {
    disk::sparse_content(5, 24 * MIB, 8)
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn files_are_cloned_to_files() {
    let source = source(false, &sparse_disk());
    for (bytes, preallocate) in
        [(CLAIM_BYTES, false), (2 * CLAIM_BYTES, false), (CLAIM_BYTES, true)]
    {
        let target = Claim::filesystem(bytes);
        clone(&source, &target, preallocate);
        assert_disk(&target, &source.disk(), 24 * MIB);
        let allocated = disk::allocated_bytes(&target.disk());
        assert_eq!(allocated >= 24 * MIB, preallocate, "{allocated} bytes are allocated");
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn all_files_of_a_volume_are_cloned() {
    let source = Claim::filesystem(CLAIM_BYTES);
    let path = |name: &str| source.path().join(name);
    std::fs::create_dir(path("folder")).or_fail("a folder");
    std::fs::write(path("folder/two.txt"), "2").or_fail("a file");
    std::fs::write(path("-one.txt"), "1").or_fail("a file");
    std::os::unix::fs::symlink("folder/two.txt", path("link")).or_fail("a link");
    for file in ["folder", "folder/two.txt", "-one.txt"] {
        chown(path(file), Some(QEMU), Some(QEMU)).or_fail(file);
    }
    let target = Claim::filesystem(CLAIM_BYTES);
    clone(&source, &target, false);
    assert_eq!(target.names(), ["-one.txt", "folder", "link"]);
    let copy = target.path();
    assert_eq!(std::fs::read_to_string(copy.join("link")).or_fail("a link"), "2");
    assert_eq!(std::fs::read_to_string(copy.join("-one.txt")).or_fail("a file"), "1");
    assert_eq!(copy.join("folder").metadata().or_fail("a folder").gid(), QEMU);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn the_disk_of_a_folder_is_cloned_to_a_device() {
    let source = source(false, &sparse_disk());
    for preallocate in [false, true] {
        let target = Claim::block(CLAIM_BYTES);
        clone(&source, &target, preallocate);
        assert_disk(&target, &source.disk(), 24 * MIB);
    }
}

#[test]
fn a_device_is_cloned_to_a_device() {
    let source = source(true, &sparse_disk());
    for bytes in [CLAIM_BYTES, CLAIM_BYTES + MIB] {
        let target = Claim::block(bytes);
        clone(&source, &target, false);
        assert_disk(&target, &source.disk(), CLAIM_BYTES);
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_device_is_cloned_to_a_file_of_its_size() {
    let mut content = sparse_disk();
    // Zeros replace the 0xFF of a new device, so that holes can be checked.
    content.resize(usize::try_from(CLAIM_BYTES).or_fail("a size"), 0);
    let source = source(true, &content);
    for preallocate in [false, true] {
        let target = Claim::filesystem(2 * CLAIM_BYTES);
        clone(&source, &target, preallocate);
        disk::assert_same(&target.disk(), &source.disk(), CLAIM_BYTES, "the clone");
        let allocated = disk::allocated_bytes(&target.disk());
        assert_eq!(allocated >= CLAIM_BYTES, preallocate, "{allocated} bytes are allocated");
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn several_clones_of_one_source_run_at_once() {
    for block in [false, true] {
        let source = source(block, &sparse_disk());
        let targets = [(); 3].map(|()| claim(block, CLAIM_BYTES));
        std::thread::scope(|scope| {
            let clones =
                targets.each_ref().map(|target| scope.spawn(|| clone(&source, target, false)));
            for clone in clones {
                assert!(clone.join().is_ok(), "a clone failed");
            }
        });
        let bytes = if block { CLAIM_BYTES } else { 24 * MIB };
        for target in &targets {
            disk::assert_same(&target.disk(), &source.disk(), bytes, "a clone");
        }
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_source_fails_with_its_upload_pod_and_succeeds_with_the_next() {
    let source = source(false, &disk::content(5, 24 * MIB));
    let target = Claim::filesystem(CLAIM_BYTES);
    let network = Network::new();
    let pods = Target::start(&network, &target, false);
    // The upload pod ends before the source starts, as after `kill 1`.
    let mut running = {
        let url = format!("https://{SERVICE}:{PORT}/v1beta1/upload");
        let hosts = [(SERVICE, pods.server.address())];
        drop(pods.server);
        source_pod(&network, &source, &pods.certificates, &url, false, &hosts)
    };
    let ended = running.wait(SOURCE);
    assert_eq!(ended.code, 255, "{}", ended.log);
    assert!(ended.message.contains("POSTing to"), "{}", ended.message);
    clone(&source, &target, false);
    assert_disk(&target, &source.disk(), 24 * MIB);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_clone_reports_progress_to_scrapes() {
    let source = source(false, &disk::content(5, 24 * MIB));
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, CLIENT);
    // This server accepts connections but never responds, so the source keeps waiting while its
    // metrics are scraped.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let address = listener.local_addr().or_fail("a port");
    network.open(address);
    let url = format!("https://{SERVICE}:{}/v1beta1/upload", address.port());
    let hosts = [(SERVICE, kubelet::network::NODE)];
    let running = source_pod(&network, &source, &certificates, &url, false, &hosts);
    let percent = running.wait_for_progress("kubevirt_cdi_clone_progress_total", OWNER, 0.0);
    assert!((0.0..100.0).contains(&percent), "{percent}");
}
