//! Imports that no retry can fix: exit code 1 with the message that users read, and nothing left
//! on the volume.

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::Claim;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;

use super::scene::{CLAIM_BYTES, MIB, SERVER, http, import, serve_plainly, url};

/// A server's response for a folder, which upstream's test 3996 tries to import.
const LISTING: &str = r#"[{"name":"tinyCore.iso","type":"file","mtime":"Mon, 01 Jan 2024 00:00:00 GMT","size":18874368}]"#;

/// A variable that ends the attempts of a first contact soon.
const SOON: [(&str, &str); 1] = [("CDI_WORKERS_CONTACT_SECONDS", "3")];

/// Imports `url` to a claim of `bytes`. Fails the test unless nothing is left on it.
fn refused(network: &Network, bytes: u64, url: &str, env: &[(&str, &str)]) -> Terminated {
    let claim = Claim::filesystem(bytes);
    let pod = Import { env: &[&http(url), env].concat(), hosts: &[SERVER], ..Import::default() };
    let ended = import(network, &claim, &pod, &[]);
    assert_eq!(claim.names(), [""; 0], "{}", ended.log);
    ended
}

#[test]
#[ignore = "server: nginx"]
fn images_larger_than_the_volume_are_refused_with_that_reason() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    // The first image is too large by the size in its header, the second one by its data.
    std::fs::write(path("virtual"), disk::content(1, MIB)).or_fail("a disk");
    tools::run("truncate", ["--size=12M".as_ref(), path("virtual").as_os_str()]);
    std::fs::write(path("physical"), disk::content(1, 12 * MIB)).or_fail("a disk");
    for name in ["virtual", "physical"] {
        let raw = std::fs::read(path(name)).or_fail(name);
        let xz = tools::filter("xz", ["-c", "-0"], &raw);
        std::fs::write(path(&format!("{name}.raw.xz")), xz).or_fail(name);
        let (from, to) = (path(name), path(&format!("{name}.qcow2")));
        let words = ["convert", "-f", "raw", "-O", "qcow2"];
        tools::run(
            "qemu-img",
            words.iter().map(AsRef::as_ref).chain([from.as_os_str(), to.as_os_str()]),
        );
    }
    let network = Network::new();
    let nginx = serve_plainly(&network, folder.path(), "root .;");
    for name in ["virtual.raw.xz", "virtual.qcow2", "physical.raw.xz", "physical.qcow2"] {
        let ended = refused(&network, 8 * MIB, &url("http", nginx.address(), name), &[]);
        assert_eq!(ended.code, 1, "{name}: {}", ended.log);
        // CDI's controllers look for these words and then tell the user that the volume is too
        // small.
        let words = "is larger than the reported available storage";
        assert!(ended.message.contains(words), "{name}: {}", ended.message);
    }
}

#[test]
#[ignore = "server: nginx"]
fn a_directory_listing_is_refused() {
    let folder = tempfile::tempdir().or_fail("a folder");
    std::fs::write(folder.path().join("index.json"), LISTING).or_fail("a listing");
    let network = Network::new();
    let nginx = serve_plainly(&network, folder.path(), "root .; index index.json;");
    let ended = refused(&network, CLAIM_BYTES, &url("http", nginx.address(), ""), &[]);
    let sentence = format!(
        "Unable to process data: Unable to obtain information about data source: could not process image header: \
         unexpected EOF: {} bytes are not a disk image; is it an error page?",
        LISTING.len()
    );
    assert_eq!(ended.import(), Verdict::Failed(sentence), "{}", ended.log);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_host_name_that_does_not_resolve_is_reported() {
    let network = Network::new();
    let ended = refused(&network, CLAIM_BYTES, "http://nobody.invalid/disk.img", &SOON);
    assert_eq!(ended.code, 1, "{}", ended.log);
    let words = "Unable to connect to http data source: ";
    assert!(ended.message.starts_with(words), "{}", ended.message);
    let cause = "http://nobody.invalid/disk.img: cannot find nobody.invalid port 80: ";
    assert!(ended.message.contains(cause), "{}", ended.message);
}

#[test]
#[ignore = "server: nginx"]
fn an_import_with_a_wrong_checksum_is_not_retried() {
    let folder = tempfile::tempdir().or_fail("a folder");
    std::fs::write(folder.path().join("disk.img"), disk::content(3, MIB)).or_fail("the disk");
    let network = Network::new();
    let nginx = serve_plainly(&network, folder.path(), "root .;");
    let checksum = [("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000")];
    let url = url("http", nginx.address(), "disk.img");
    let ended = refused(&network, CLAIM_BYTES, &url, &checksum);
    let verdict = ended.import();
    let Verdict::ChecksumMismatch(message) = &verdict else { panic!("{verdict:?}: {}", ended.log) };
    assert!(message.contains("checksum validation failed"), "{message}");
}

#[test]
#[ignore = "server: nginx"]
fn the_response_of_a_service_mesh_without_its_server_is_reported() {
    let folder = tempfile::tempdir().or_fail("a folder");
    std::fs::write(folder.path().join("disk.raw"), disk::content(1, MIB)).or_fail("a disk");
    let network = Network::new();
    // A proxy in front of a server that refuses connections, like a sidecar when a pod starts
    // before the service mesh is ready.
    let mesh =
        serve_plainly(&network, folder.path(), "location / { proxy_pass http://127.0.0.1:1; }");
    let url = url("http", mesh.address(), "disk.raw");
    let ended = refused(&network, CLAIM_BYTES, &url, &SOON);
    assert!(ended.log.contains("502 Bad Gateway"), "{}", ended.log);
    let Verdict::Failed(message) = ended.import() else {
        panic!("{}", ended.log);
    };
    assert!(message.contains("502 Bad Gateway"), "{message}");
}
