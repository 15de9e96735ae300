//! Labels that tell where a disk comes from, if an administrator wants them.

use serde_json::{Value, json};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::layout_registry::LayoutRegistry;
use testkit::oci::{Compression, Image};
use testkit::origin::Script;

use super::pod::{MIB, Pod, SUCCESS, serve};

const WANTED: (&str, &str) = ("CDI_WORKERS_PROVENANCE_LABELS", "true");

fn labels_of(pod: &Pod) -> Value {
    pod.run().assert_success("import");
    let message = pod.message().or_fail("a message");
    let message: Value = serde_json::from_str(&message).or_fail(&message);
    message.get("labels").cloned().unwrap_or_default()
}

#[test]
fn nothing_is_added_unless_it_is_wanted() {
    let origin = serve(Script::new(disk::content(1, MIB)));
    Pod::http(&origin.url("/disk"), &[]).assert_succeeds_with(SUCCESS);
    Pod::http(&origin.url("/disk"), &[(WANTED.0, "no")]).assert_succeeds_with(SUCCESS);
    let labels = labels_of(&Pod::http(&origin.url("/disk"), &[WANTED]));
    let expected = json!({
        "cdiworkers.kubevirt.io/disk-bytes": "1048576",
        "cdiworkers.kubevirt.io/importer-version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(labels, expected, "no digest was verified");
}

#[test]
fn the_digest_is_that_of_the_image_and_no_image_can_forge_it() {
    let image = Image {
        env: vec![
            "CDIWORKERS_KUBEVIRT_IO_SOURCE_DIGEST=sha256-forged",
            "CDIWORKERS_KUBEVIRT_IO_DISK_BYTES=9",
            "CDIWORKERS_KUBEVIRT_IO_IMPORTER_VERSION=9",
            "KUBEVIRT_IO_OS=linux",
        ],
        ..Image::of_disk(&disk::content(1, MIB), Compression::Gzip)
    };
    let registry = LayoutRegistry::of_images(&[image]);
    let mut pod = Pod::new(&[
        ("IMPORTER_SOURCE", "registry"),
        ("IMPORTER_ENDPOINT", &registry.reference()),
        ("INSECURE_TLS", "true"),
    ]);
    assert_eq!(labels_of(&pod), json!({ "kubevirt.io/os": "linux" }), "none are wanted");
    pod.set(WANTED.0, WANTED.1);
    let digest: String = registry.digest().replace(':', "-").chars().take(63).collect();
    let expected = json!({
        "cdiworkers.kubevirt.io/source-digest": digest,
        "cdiworkers.kubevirt.io/disk-bytes": "1048576",
        "cdiworkers.kubevirt.io/importer-version": env!("CARGO_PKG_VERSION"),
        "kubevirt.io/os": "linux",
    });
    assert_eq!(labels_of(&pod), expected);
}
