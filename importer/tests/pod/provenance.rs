//! Labels that tell where a disk comes from, if an administrator wants them.

use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::oci::{Compression, Image};
use testkit::origin::Script;
use testkit::tools;

use super::pod::{MIB, Pod, SUCCESS, serve};

const WANTED: (&str, &str) = ("CDI_WORKERS_PROVENANCE_LABELS", "true");

fn labels_of(pod: &Pod) -> serde_json::Value {
    pod.run().assert_success("import");
    let message = pod.message().or_fail("a message");
    let message: serde_json::Value = serde_json::from_str(&message).or_fail(&message);
    message.get("labels").cloned().unwrap_or_default()
}

#[test]
fn nothing_is_added_unless_it_is_wanted() {
    let origin = serve(Script::new(disk::content(1, MIB)));
    Pod::http(&origin.url("/disk"), &[]).assert_succeeds_with(SUCCESS);
    Pod::http(&origin.url("/disk"), &[(WANTED.0, "no")]).assert_succeeds_with(SUCCESS);
    let labels = labels_of(&Pod::http(&origin.url("/disk"), &[WANTED]));
    let expected = serde_json::json!({
        "cdiworkers.kubevirt.io/disk-bytes": "1048576",
        "cdiworkers.kubevirt.io/importer-version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(labels, expected, "no digest was verified");
}

#[test]
#[ignore = "server: docker-registry"]
fn the_digest_is_that_of_the_image_and_no_image_can_forge_it() {
    let registry = DockerRegistry::start(Setup::default());
    let image = Image {
        env: vec![
            "CDIWORKERS_KUBEVIRT_IO_SOURCE_DIGEST=sha256-forged",
            "CDIWORKERS_KUBEVIRT_IO_DISK_BYTES=9",
            "CDIWORKERS_KUBEVIRT_IO_IMPORTER_VERSION=9",
            "KUBEVIRT_IO_OS=linux",
        ],
        ..Image::of_disk(&disk::content(1, MIB), Compression::Gzip)
    };
    registry.push("fedora:40", &[image], &[]);
    let reference = registry.reference("fedora:40");
    let words = ["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &reference];
    let digest = tools::run("skopeo", words);
    let source = [
        ("IMPORTER_SOURCE", "registry"),
        ("IMPORTER_ENDPOINT", reference.as_str()),
        ("INSECURE_TLS", "true"),
    ];
    let labels = labels_of(&Pod::new(&source));
    assert_eq!(labels, serde_json::json!({ "kubevirt.io/os": "linux" }), "none are wanted");
    let labels = labels_of(&Pod::new(&[&source[..], &[WANTED]].concat()));
    let digest: String = digest.trim().replace(':', "-").chars().take(63).collect();
    assert_eq!(labels["cdiworkers.kubevirt.io/source-digest"], digest);
    assert_eq!(labels["cdiworkers.kubevirt.io/disk-bytes"], "1048576");
    assert_eq!(labels["cdiworkers.kubevirt.io/importer-version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["kubevirt.io/os"], "linux");
}
