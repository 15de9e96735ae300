//! Checks that a file that is not a delta, or not one to this disk, is refused before anything is
//! touched.

use datapath::delta::DeltaBase;
use stream::Error;
use testkit::images::{Content, Spec};

use crate::common::Memory;
use crate::delta::{MIB, Scene, apply};

/// Checks that the delta is refused, and that the disk is unchanged in content and length.
#[track_caller]
fn refused(scene: &Scene, source: &Memory, base: &DeltaBase, sentence: &str) {
    let error = apply(source, base).unwrap_err().to_string();
    assert!(error.contains(sentence), "{error}");
    let [before, after] =
        [&scene.delta.base, &base.disk.path].map(|path| std::fs::read(path).unwrap());
    assert!(before == after, "a refused delta changed the disk");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_to_another_disk_is_refused_before_anything_is_touched() {
    let scene = Scene::new();
    let (base, ranged) = (scene.base(), Memory::ranged(scene.bytes()));
    let other = DeltaBase { name: Some("other".into()), ..scene.base() };
    let sentence = "snapshot backing file 'delta.base' does not match expected checkpoint 'other', unable to safely rebase snapshot";
    refused(&scene, &ranged, &other, sentence);
    refused(&scene, &Memory::new(scene.bytes()), &other, sentence);
    let mut small = scene.base();
    small.disk.available = 6 * MIB - 512;
    refused(&scene, &ranged, &small, "is larger than the reported available storage");

    let whole = Spec::new(Content::Sparse).build(scene.folder.path(), "whole");
    for (path, sentence) in [(&whole.qcow2, "no backing file"), (&scene.delta.base, "raw")] {
        refused(&scene, &Memory::ranged(std::fs::read(path).unwrap()), &base, sentence);
    }
    refused(&scene, &Memory::new(Vec::new()), &base, "");

    let mut missing = base;
    missing.disk.path = scene.folder.path().join("missing");
    let error = apply(&ranged, &missing).unwrap_err();
    assert!(matches!(error, Error::Target(_)), "{error}");
    assert!(!missing.disk.path.exists(), "the missing disk was created");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn only_the_last_component_of_the_base_name_counts() {
    let scene = Scene::new();
    let wanted = DeltaBase { name: Some("checkpoint".into()), ..scene.base() };
    for name in ["checkpoint", "/etc/checkpoint", "../../checkpoint", "a/b/checkpoint"] {
        scene.delta.rename_base(name);
        apply(&Memory::ranged(scene.bytes()), &wanted).unwrap();
        scene.assert_applied(name);
    }
    for name in [
        "checkpoint2",
        "/checkpoint/x",
        "Checkpoint",
        r#"json:{"driver":"raw","file":{"driver":"file","filename":"/etc/checkpoint"}}"#,
        "nbd://127.0.0.1:1/checkpoint?",
    ] {
        scene.delta.rename_base(name);
        let source = Memory::ranged(scene.bytes());
        refused(&scene, &source, &wanted, "does not match expected checkpoint");
    }
}
