//! The tar of an OCI layout on a web server, as KubeVirt serves its exports.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::oci::{Artifact, ArtifactLayer, tar_layout, write_artifacts};
use testkit::origin::{Fault, Object, Origin, Ranges, Script};
use testkit::process::Program;
use testkit::random::Random;

use super::scene::{MIB, SOURCE_FAILED, Scene};
use crate::place::Place;

/// Three disks, and the tar of their layout in the order that `order` makes.
fn export(scene: &Scene, order: impl FnOnce(&mut Vec<String>)) -> ([Vec<u8>; 3], Vec<u8>) {
    let mut disks = [(1, 2), (2, 6), (3, 1)].map(|(seed, mib)| disk::content(seed, mib * MIB));
    // The one in the middle cannot be compressed, so that it is larger than a document may be.
    Random::new(2).fill(&mut disks[1]);
    let layers = ["root", "data", "swap"].iter().zip(&disks);
    let layers = layers.map(|(name, disk)| ArtifactLayer::kubevirt_disk(name, disk)).collect();
    let folder = scene.path("layout");
    let mut names = write_artifacts(&folder, &[Artifact::kubevirt_export(layers)]);
    order(&mut names);
    (disks, tar_layout(&folder, &names))
}

fn import(scene: &Scene, url: &str, layer: Option<&str>) -> Program {
    let layer = layer.map(|layer| ["--layer", layer]);
    Place::import(scene, url).args(layer.into_iter().flatten())
}

#[test]
#[ignore = "tools: zstd"]
fn each_disk_of_an_export_is_imported_in_one_pass() {
    let scene = Scene::new();
    let (disks, tar) = export(&scene, |_| {});
    let origin = Origin::start(Script {
        object: Object::new(tar, None),
        ranges: Ranges::Refused,
        ..Script::new("")
    })
    .or_fail("an origin");
    let url = origin.url("/export.oci.tar");
    for (name, content) in ["root", "data", "swap"].iter().zip(&disks) {
        scene.assert_imports(import(&scene, &url, Some(name)), content, name);
    }
    assert_eq!(origin.requests().len(), 3, "{:?}", origin.requests());
    let text = "the artifact has several disks: root, data, swap; choose one with --layer";
    scene.assert_refused(import(&scene, &url, None), SOURCE_FAILED, text);
    let listed = Program::new(crate::BINARY).args(["info", &url]).run();
    listed.assert_success("info");
    assert!(listed.stdout.contains("layer              swap"), "{}", listed.stdout);
    let text = "no layer matches boot; available layers: root, data, swap";
    scene.assert_refused(import(&scene, &url, Some("boot")), SOURCE_FAILED, text);
    let checksum = format!("sha256:{}", "0".repeat(64));
    let program = import(&scene, &url, Some("root")).args(["--checksum", &checksum]);
    scene.assert_refused(program, SOURCE_FAILED, "a checksum of the whole tar is not supported");
}

#[test]
#[ignore = "tools: zstd"]
fn a_selector_of_the_only_image_does_not_apply_to_its_layers() {
    let scene = Scene::new();
    let content = disk::content(4, MIB);
    let layer = ArtifactLayer::kubevirt_disk("root", &content);
    let folder = scene.path("layout");
    let names = write_artifacts(&folder, &[Artifact::podman_machine("qemu", "amd64", layer)]);
    // The names are `oci-layout`, `index.json`, and then the blob of the manifest.
    let digest = names[2].replacen("blobs/sha256/", "sha256:", 1);
    let origin = Origin::start(Script::new(tar_layout(&folder, &names))).or_fail("an origin");
    for selector in [digest.as_str(), "disktype=qemu", "root"] {
        let program = import(&scene, &origin.url("/x.tar"), Some(selector));
        scene.assert_imports(program, &content, selector);
    }
}

#[test]
#[ignore = "tools: zstd"]
fn folders_may_come_first_and_a_broken_connection_is_resumed() {
    let scene = Scene::new();
    // The order of the image in upstream's tests.
    let (disks, tar) = export(&scene, |names| {
        names.splice(0..0, ["blobs/", "blobs/sha256/"].map(str::to_owned));
    });
    let length = tar.len() as u64;
    let faults = vec![Fault::CutAt(length / 2)];
    let origin = Origin::start(Script { faults, ..Script::new(tar) }).or_fail("an origin");
    scene.assert_imports(
        import(&scene, &origin.url("/x.tar"), Some("data")),
        &disks[1],
        "cut at 50 %",
    );
    let sent: u64 = origin.requests().iter().map(|request| request.body_bytes).sum();
    assert!(sent < length * 101 / 100, "{sent} of {length} bytes were sent");
}

#[test]
#[ignore = "tools: zstd"]
fn layers_before_the_manifest_are_refused_without_reading_them() {
    let scene = Scene::new();
    let (_, tar) = export(&scene, |names| names.reverse());
    let origin = Origin::start(Script::new(tar)).or_fail("an origin");
    let text = "the OCI layout cannot be read in one pass: its files are not in the order";
    scene.assert_refused(import(&scene, &origin.url("/x.tar"), Some("root")), SOURCE_FAILED, text);
}

#[test]
#[ignore = "tools: zstd"]
fn damaged_and_incomplete_exports_are_refused() {
    let scene = Scene::new();
    let (_, tar) = export(&scene, |_| {});
    let half = tar[..4 << 20].to_vec();
    let mut damaged = tar.clone();
    damaged[5 << 20] ^= 1;
    for (tar, text) in
        [(half, "the archive is truncated"), (damaged, "data doesn't match checksum")]
    {
        let origin = Origin::start(Script::new(tar)).or_fail("an origin");
        let finished = import(&scene, &origin.url("/x.tar"), Some("data")).run();
        assert!(
            finished.code() != 0 && finished.stderr.contains(text),
            "{text}: {}",
            finished.stderr
        );
        assert!(!scene.target().exists(), "{text}");
    }
}

#[test]
fn other_content_of_web_servers_has_no_layers() {
    let scene = Scene::new();
    let content = disk::content(9, MIB);
    let origin = Origin::start(Script::new(content.clone())).or_fail("an origin");
    let url = origin.url("/disk.img");
    scene.assert_imports(import(&scene, &url, None), &content, "a raw disk");
    let text = "is not the tar of an OCI layout, so it has no layer root";
    scene.assert_refused(import(&scene, &url, Some("root")), SOURCE_FAILED, text);
    let program = Program::new(crate::BINARY)
        .args(["unpack", "--layer", "root", &url])
        .arg(scene.path("files"));
    program.run().assert_failure(
        super::scene::USAGE,
        "this command does not support --layer for a web server",
    );
}
