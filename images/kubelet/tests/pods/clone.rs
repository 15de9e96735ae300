//! Clone pods: a source pod reads one claim and sends it to the upload pod of another claim.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};

use kubelet::controller::{self, Host, OWNER};
use kubelet::network::{NODE, Network};
use kubelet::pod::{self, RunningPod};
use kubelet::volumes::{Claim, QEMU};
use testkit::disk;
use testkit::fail::OrFail;

use super::scene::{
    CLAIM_BYTES, Certificates, MIB, assert_allocation, assert_disk, success, with_claim,
};

const SOURCE: &str = "cdi-clone-source";

/// Longer than X.520 allows for a common name, as happens in clusters.
const CLIENT: &str = "a-namespace-with-a-long-name/a-claim-with-a-long-name-another-namespace/another-claim-with-a-long-name";
const SERVICE: &str = "cdi-upload-target.ns.svc";

/// Starts the source pod for `claim`, which sends to `server` at this port.
fn start_source<'a>(
    network: &'a Network,
    claim: &Claim,
    certificates: &Certificates,
    server: Host<'_>,
    port: u16,
    preallocate: bool,
) -> RunningPod<'a> {
    let authority = certificates.authority.pem();
    // As CDI's controllers write it.
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let url = format!("https://{}{port}/v1beta1/upload", server.0);
    let pod = controller::clone_source(claim, "client", &authority, &url, preallocate, &[server]);
    pod::start(network, &pod, &with_claim(claim, [certificates.client_secret()]))
}

/// Clones `source` to `target`. Fails the test unless both pods end as CDI's controllers expect.
#[track_caller]
fn clone(source: &Claim, target: &Claim, preallocate: bool) {
    clone_in(&Network::new(), source, target, preallocate);
}

#[track_caller]
pub(crate) fn clone_in(network: &Network, source: &Claim, target: &Claim, preallocate: bool) {
    let certificates = Certificates::new(SERVICE, CLIENT);
    let word = if preallocate { "true" } else { "false" };
    let pod = controller::upload_server(target, "server", CLIENT, &[("PREALLOCATION", word)]);
    let objects = with_claim(target, [certificates.server_secret()]);
    let mut server = pod::start(network, &pod, &objects);
    server.wait_until_ready();
    let (address, port) = network.serve_uploads(server.address());
    let service = (SERVICE, address);
    let ended =
        start_source(network, source, &certificates, service, port, preallocate).wait(SOURCE);
    // The message is plain text. For a preallocated clone CDI requires exactly these words
    // (contract §4.4).
    let message =
        if preallocate { "Clone Complete, Preallocation applied" } else { "Clone Complete" };
    assert_eq!((ended.code, ended.message.as_str()), (0, message), "{}", ended.log);
    let ended = server.wait("cdi-upload-server");
    // The upload server reports preallocation always for clones between files, and never for
    // others (contract §2.7). CDI's controller relies on the source's message instead.
    let files = !source.is_block() && !target.is_block();
    assert_eq!(ended.upload(), success("Clone Complete", files), "{}", ended.log);
}

/// Makes a claim of [`CLAIM_BYTES`] that contains the disk `content`.
pub(crate) fn source(block: bool, content: &[u8]) -> Claim {
    if block {
        let claim = Claim::block(CLAIM_BYTES);
        let device = File::options().write(true).open(claim.path()).or_fail("a device");
        device.write_all_at(content, 0).or_fail("a device");
        device.sync_all().or_fail("a device");
        return claim;
    }
    let claim = Claim::filesystem(CLAIM_BYTES);
    disk::write_sparse(&claim.disk(), content);
    fs::set_permissions(claim.disk(), Permissions::from_mode(0o660)).or_fail("a disk");
    chown(claim.disk(), Some(QEMU), Some(QEMU)).or_fail("a disk");
    claim
}

/// Clones a disk of `bytes`, of which an eighth is data, to all kinds of targets at once.
fn clone_to_each(block: bool, bytes: u64) {
    let mut content = disk::sparse_content(5, 24 * MIB, 8);
    content.resize(usize::try_from(bytes).or_fail("a size"), 0);
    let source = source(block, &content);
    let targets = [
        (Claim::filesystem(2 * CLAIM_BYTES), false),
        (Claim::filesystem(2 * CLAIM_BYTES), true),
        (Claim::block(CLAIM_BYTES), false),
        (Claim::block(CLAIM_BYTES + MIB), true),
    ];
    std::thread::scope(|scope| {
        let clones = targets.each_ref().map(|(target, preallocate)| {
            let source = &source;
            scope.spawn(move || clone(source, target, *preallocate))
        });
        for clone in clones {
            assert!(clone.join().is_ok(), "a clone failed");
        }
    });
    for (target, preallocate) in &targets {
        assert_disk(target, &source.disk(), bytes);
        assert_allocation(target, *preallocate);
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn the_disk_of_a_folder_is_cloned_to_several_files_and_devices_at_once() {
    clone_to_each(false, 24 * MIB);
    // The target may be as small as the source.
    let source = source(false, &disk::content(5, 24 * MIB));
    let target = Claim::filesystem(CLAIM_BYTES);
    clone(&source, &target, false);
    assert_disk(&target, &source.disk(), 24 * MIB);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_device_is_cloned_to_several_files_and_devices_at_once() {
    clone_to_each(true, CLAIM_BYTES);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn all_files_of_a_volume_are_cloned() {
    let source = Claim::filesystem(CLAIM_BYTES);
    let path = |name: &str| source.path().join(name);
    fs::create_dir(path("folder")).or_fail("a folder");
    fs::write(path("folder/two.txt"), "2").or_fail("a file");
    fs::write(path("-one.txt"), "1").or_fail("a file");
    symlink("folder/two.txt", path("link")).or_fail("a link");
    for file in ["folder", "folder/two.txt", "-one.txt"] {
        chown(path(file), Some(QEMU), Some(QEMU)).or_fail(file);
    }
    let target = Claim::filesystem(CLAIM_BYTES);
    clone(&source, &target, false);
    assert_eq!(target.names(), ["-one.txt", "folder", "link"]);
    let copy = |name: &str| target.path().join(name);
    assert_eq!(fs::read_to_string(copy("link")).or_fail("a link"), "2");
    assert_eq!(fs::read_to_string(copy("-one.txt")).or_fail("a file"), "1");
    assert_eq!(copy("folder").metadata().or_fail("a folder").gid(), QEMU);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_clone_reports_progress_to_scrapes_and_its_failure_in_its_message() {
    let source = source(false, &disk::content(5, 24 * MIB));
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, CLIENT);
    // This server accepts connections but never responds, so the source keeps waiting while its
    // metrics are scraped.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let address = listener.local_addr().or_fail("a port");
    network.open(address);
    let server = (SERVICE, NODE);
    let mut running = start_source(&network, &source, &certificates, server, address.port(), false);
    let percent = running.wait_for_progress("kubevirt_cdi_clone_progress_total", OWNER, 0.0);
    assert!((0.0..100.0).contains(&percent), "{percent}");
    // The upload pod ends.
    drop(listener);
    let ended = running.wait(SOURCE);
    assert_eq!(ended.code, 255, "{}", ended.log);
    assert!(ended.message.contains("POSTing to"), "{}", ended.message);
}
