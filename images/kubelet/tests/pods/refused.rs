//! Imports that no retry can fix: exit code 1 with the message that users read, and nothing left
//! on the volume.

use kubelet::controller::Import;
use kubelet::state::Verdict;
use kubelet::volumes::Claim;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;

use super::scene::{CLAIM_BYTES, MIB, SERVER, Scene, http, url};

/// A server's response for a folder, which upstream's test 3996 tries to import.
const LISTING: &str = r#"[{"name":"tinyCore.iso","type":"file","mtime":"Mon, 01 Jan 2024 00:00:00 GMT","size":18874368}]"#;

/// A mesh is a proxy in front of a server that refuses connections, like a sidecar when a pod
/// starts before the service mesh is ready.
const DIRECTIVES: &str =
    "root .; index index.json; location /mesh { proxy_pass http://127.0.0.1:1; }";

/// CDI's controllers look for these words and then tell the user that the volume is too small.
const TOO_SMALL: &str = "is larger than the reported available storage";

/// Writes two images that are too large for a volume of 8 MiB: by the size in the header, and by
/// their data.
fn write_large_images(scene: &Scene) {
    let path = |name: &str| scene.folder.path().join(name);
    scene.write("virtual", disk::content(1, MIB));
    tools::run("truncate", ["--size=12M".as_ref(), path("virtual").as_os_str()]);
    scene.write("physical", disk::content(1, 12 * MIB));
    for name in ["virtual", "physical"] {
        let raw = std::fs::read(path(name)).or_fail(name);
        scene.write(&format!("{name}.raw.xz"), tools::filter("xz", ["-c", "-0"], &raw));
        let (from, to) = (path(name), path(&format!("{name}.qcow2")));
        let words = ["convert", "-f", "raw", "-O", "qcow2"].map(AsRef::as_ref);
        tools::run("qemu-img", words.into_iter().chain([from.as_os_str(), to.as_os_str()]));
    }
}

#[test]
#[ignore = "server: nginx"]
fn the_reason_of_a_refusal_is_the_message_of_the_pod() {
    let scene = Scene::new();
    write_large_images(&scene);
    scene.write("index.json", LISTING);
    let nginx = scene.serve(false, DIRECTIVES);
    let listing = format!("{} bytes are not a disk image; is it an error page?", LISTING.len());
    let sum = ("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000");
    // The attempts of a first contact end soon.
    let soon = ("CDI_WORKERS_CONTACT_SECONDS", "3");
    for (path, bytes, variable, begin, part) in [
        ("virtual.raw.xz", 8 * MIB, soon, "Unable to process data: ", TOO_SMALL),
        ("virtual.qcow2", 8 * MIB, soon, "Unable to process data: ", TOO_SMALL),
        ("physical.raw.xz", 8 * MIB, soon, "Unable to process data: ", TOO_SMALL),
        ("physical.qcow2", 8 * MIB, soon, "Unable to process data: ", TOO_SMALL),
        ("", CLAIM_BYTES, soon, "Unable to process data: ", &listing),
        ("virtual", CLAIM_BYTES, sum, "Unable to process data: ", "checksum validation failed"),
        ("none", CLAIM_BYTES, soon, "Unable to connect to http data source: ", "404 Not Found"),
        ("mesh", CLAIM_BYTES, soon, "Unable to connect to http data source: ", "502 Bad Gateway"),
        (
            "http://nobody.invalid/disk.img",
            CLAIM_BYTES,
            soon,
            "Unable to connect to http data source: ",
            "cannot find nobody.invalid port 80: ",
        ),
    ] {
        let url = match path.contains("://") {
            true => path.to_owned(),
            false => url("http", nginx.address(), path),
        };
        let claim = Claim::filesystem(bytes);
        let env = &[&http(&url)[..], &[variable]].concat();
        let ended = scene.import(&claim, &Import { env, hosts: &[SERVER], ..Import::default() });
        let message = match ended.import() {
            // The claim fails, and the container is not started again.
            Verdict::ChecksumMismatch(message) if variable == sum => message,
            Verdict::Failed(message) if variable == soon => message,
            other => panic!("{path}: {other:?}: {}", ended.log),
        };
        assert!(message.starts_with(begin) && message.contains(part), "{path}: {message}");
        assert!(ended.log.contains(part), "{path}: {}", ended.log);
        assert_eq!(claim.names(), [""; 0], "{path}: {}", ended.log);
    }
}
