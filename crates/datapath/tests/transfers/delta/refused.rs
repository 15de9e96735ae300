//! Checks that a file that is not a delta, or not one to this disk, is refused before anything is
//! touched.

use std::path::Path;

use datapath::Error;
use datapath::delta::{DeltaBase, apply_delta};
use datapath::options::{ReadOptions, WriteOptions};
use testkit::images::{Content, Delta, Spec};

use crate::common::{Memory, fast_folder};
use crate::delta::{MIB, assert_applied, base, bytes, copy, rich_delta};

/// Checks that the delta is refused, and that the disk is unchanged in content and length.
#[track_caller]
fn refused(source: &Memory, base_of: &DeltaBase, delta: &Delta, sentence: &str) {
    let error = apply_delta(source, base_of, &ReadOptions::default(), &WriteOptions::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains(sentence), "{error}");
    let (before, after) =
        (std::fs::read(&delta.base).unwrap(), std::fs::read(&base_of.path).unwrap());
    assert!(before == after, "a refused delta changed the disk");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_to_another_disk_is_refused_before_anything_is_touched() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let other = DeltaBase { name: Some("other".into()), ..base(&target, &delta) };
    let ranged = Memory::ranged(bytes(&delta));
    let sentence = "snapshot backing file 'delta.base' does not match expected checkpoint 'other', unable to safely rebase snapshot";
    refused(&ranged, &other, &delta, sentence);
    refused(&Memory::new(bytes(&delta)), &other, &delta, sentence);

    let small = DeltaBase { available: 6 * MIB - 512, ..base(&target, &delta) };
    refused(&ranged, &small, &delta, "is larger than the reported available storage");

    let whole = Spec::new(Content::Sparse).build(folder.path(), "whole");
    let whole = Memory::ranged(std::fs::read(whole.qcow2).unwrap());
    refused(&whole, &base(&target, &delta), &delta, "no backing file");
    let raw = Memory::ranged(std::fs::read(&delta.base).unwrap());
    refused(&raw, &base(&target, &delta), &delta, "raw");
    refused(&Memory::new(Vec::new()), &base(&target, &delta), &delta, "");

    let missing = DeltaBase { path: folder.path().join("missing"), ..base(&target, &delta) };
    let error = apply_delta(&ranged, &missing, &ReadOptions::default(), &WriteOptions::default())
        .unwrap_err();
    assert!(matches!(error, Error::Target(_)), "{error}");
    assert!(!missing.path.exists(), "the missing disk was created");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn only_the_last_component_of_the_base_name_counts() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let wanted =
        |target: &Path| DeltaBase { name: Some("checkpoint".into()), ..base(target, &delta) };
    for name in ["checkpoint", "/etc/checkpoint", "../../checkpoint", "a/b/checkpoint"] {
        delta.rename_base(name);
        let target = copy(&delta, folder.path());
        apply_delta(
            &Memory::ranged(bytes(&delta)),
            &wanted(&target),
            &ReadOptions::default(),
            &WriteOptions::default(),
        )
        .unwrap();
        assert_applied(&target, &delta, name);
    }
    for name in [
        "checkpoint2",
        "/checkpoint/x",
        "Checkpoint",
        r#"json:{"driver":"raw","file":{"driver":"file","filename":"/etc/checkpoint"}}"#,
        "nbd://127.0.0.1:1/checkpoint?",
    ] {
        delta.rename_base(name);
        let target = copy(&delta, folder.path());
        refused(
            &Memory::ranged(bytes(&delta)),
            &wanted(&target),
            &delta,
            "does not match expected checkpoint",
        );
    }
}
