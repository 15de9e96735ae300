//! Clone pods: the source reads one claim and sends it to an upload pod with another one.

use kubelet::controller::{self, OWNER};
use kubelet::network::Network;
use kubelet::pod;
use kubelet::state::Verdict;
use kubelet::volumes::{Claim, Objects};
use testkit::disk;
use testkit::fail::OrFail;

use super::scene::{CLAIM_BYTES, Certificates, MIB, with_claim};

/// Longer than a common name may be by X.520, as in clusters.
const CLIENT: &str =
    "a-namespace-with-a-long-name/a-claim-with-a-long-name-another-namespace/another-claim-with-a-long-name";
const SERVICE: &str = "cdi-upload-target.ns.svc";

/// Clones `source` to `target` and returns what the upload controller concludes.
fn clone(source: &Claim, target: &Claim, preallocate: bool) -> Verdict {
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, CLIENT);
    let word = if preallocate { "true" } else { "false" };
    let upload_pod = controller::upload_server(target, "server", CLIENT, &[("PREALLOCATION", word)]);
    let objects = Objects {
        files: [("server", certificates.server_secret())].into(),
        ..with_claim(target)
    };
    let mut server = pod::start(&network, &upload_pod, &objects);
    server.wait_until_ready();

    let url = format!("https://{SERVICE}:8443/v1beta1/upload");
    let hosts = [(SERVICE, server.address())];
    let source_pod = controller::clone_source(
        source,
        "client",
        &certificates.authority.pem(),
        &url,
        preallocate,
        &hosts,
    );
    let objects = Objects {
        files: [("client", certificates.client_secret())].into(),
        ..with_claim(source)
    };
    let ended = pod::start(&network, &source_pod, &objects).wait("cdi-clone-source");
    assert_eq!(ended.code, 0, "{}", ended.log);
    // Plain text, and these words for a clone that is preallocated (contract §4.4).
    let message = if preallocate {
        "Clone Complete, Preallocation applied"
    } else {
        "Clone Complete"
    };
    assert_eq!(ended.message, message);
    server.wait("cdi-upload-server").upload()
}

fn claim(block: bool) -> Claim {
    if block {
        Claim::block(CLAIM_BYTES)
    } else {
        Claim::filesystem(CLAIM_BYTES)
    }
}

/// A claim with a disk of `bytes`.
fn source(block: bool, content: &[u8]) -> Claim {
    let claim = claim(block);
    if block {
        use std::os::unix::fs::FileExt;
        let device = std::fs::File::options()
            .write(true)
            .open(claim.path())
            .or_fail("a device");
        device.write_all_at(content, 0).or_fail("a device");
        device.sync_all().or_fail("a device");
    } else {
        std::fs::write(claim.disk(), content).or_fail("a disk");
        std::os::unix::fs::chown(
            claim.disk(),
            Some(kubelet::volumes::QEMU),
            Some(kubelet::volumes::QEMU),
        )
        .or_fail("a disk");
    }
    claim
}

#[test]
fn a_disk_is_cloned_between_volumes_of_both_kinds() {
    let content = disk::sparse_content(5, 24 * MIB, 4);
    for (from_block, to_block) in [(false, false), (false, true), (true, true)] {
        let source = source(from_block, &content);
        let target = claim(to_block);
        let verdict = clone(&source, &target, false);
        assert!(
            matches!(&verdict, Verdict::Succeeded { message, .. } if message == "Clone Complete"),
            "{verdict:?}"
        );
        let bytes = content.len() as u64;
        disk::assert_same(&target.disk(), &source.disk(), bytes, "the clone");
    }
}

#[test]
fn a_device_is_cloned_to_a_file_of_its_size() {
    let source = source(true, &disk::content(5, 24 * MIB));
    // A device becomes a file of its size, which must fit beside what the filesystem needs.
    let target = Claim::filesystem(2 * CLAIM_BYTES);
    let verdict = clone(&source, &target, true);
    assert!(
        matches!(
            &verdict,
            Verdict::Succeeded {
                preallocated: true,
                ..
            }
        ),
        "{verdict:?}"
    );
    disk::assert_same(&target.disk(), &source.disk(), CLAIM_BYTES, "the clone");
}

#[test]
fn progress_of_a_clone_is_scraped() {
    let source = source(false, &disk::content(5, 24 * MIB));
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, CLIENT);
    // An address where nothing answers: the source waits for it while it is looked at.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let address = listener.local_addr().or_fail("a port");
    network.open(address);
    let url = format!("https://{SERVICE}:{}/v1beta1/upload", address.port());
    let hosts = [(SERVICE, kubelet::network::NODE)];
    let pod = controller::clone_source(
        &source,
        "client",
        &certificates.authority.pem(),
        &url,
        false,
        &hosts,
    );
    let objects = Objects {
        files: [("client", certificates.client_secret())].into(),
        ..with_claim(&source)
    };
    let running = pod::start(&network, &pod, &objects);
    let percent = running.wait_for_progress("kubevirt_cdi_clone_progress_total", OWNER, 0.0);
    assert!((0.0..100.0).contains(&percent), "{percent}");
}
