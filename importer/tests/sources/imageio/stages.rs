//! Warm imports in pods as CDI runs them: a pod for each stage, and the disk that they make.

use std::os::unix::fs::PermissionsExt;

use testkit::disk;
use testkit::images::{Content, Delta, Spec};
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};

use super::{MIB, Place, assert_ended, raw_disk, sparse};
use crate::pod::{Pod, SUCCESS};

/// A pod whose volume the stages fill.
fn pod(engine: &Engine) -> Pod {
    Pod::new(&[
        ("IMPORTER_SOURCE", "imageio"),
        ("IMPORTER_ENDPOINT", &engine.api_url()),
        ("IMPORTER_DISK_ID", DISK_ID),
        ("IMPORTER_ACCESS_KEY_ID", USER),
        ("IMPORTER_SECRET_KEY", PASSWORD),
        ("FILESYSTEM_OVERHEAD", "0"),
    ])
}

/// Prepares the pod for the stage from `previous` to `current`, with a volume of this size.
fn stage(pod: &mut Pod, previous: &str, current: &str, size: &str) {
    pod.set("IMPORTER_PREVIOUS_CHECKPOINT", previous);
    pod.set("IMPORTER_CURRENT_CHECKPOINT", current);
    pod.set("IMPORTER_IMAGE_SIZE", size);
}

/// An engine with a snapshot of 8 MiB and the delta to the next; names are those of checkpoints.
fn warm(place: &Place) -> (Delta, Engine) {
    let spec = Spec { virtual_size: 8 * MIB, ..Spec::new(Content::Empty) };
    let delta = spec.build_delta(8 * MIB, &place.path(""), "delta");
    delta.rename_base("/rhev/data-center/mnt/images/first");
    let bytes = |path| std::fs::read(path).unwrap().into();
    let first = Contents { raw: bytes(&delta.base), ..Contents::default() };
    let second = Contents { cow: bytes(&delta.qcow2), ..Contents::default() };
    let engine = Engine::start(Script {
        snapshots: [("first".to_owned(), first), ("second".to_owned(), second)].into(),
        ..raw_disk(vec![0; 512])
    });
    (delta, engine)
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_warm_import_of_two_stages_makes_the_final_disk() {
    let place = Place::new();
    let (delta, engine) = warm(&place);
    let mut pod = pod(&engine);
    stage(&mut pod, "", "first", "9Mi");
    pod.assert_succeeds_with(SUCCESS);
    disk::assert_same(&pod.disk(), &delta.base, 8 * MIB, "the first stage");
    assert_eq!(pod.disk().metadata().unwrap().len(), 9 * MIB, "the first stage is resized");
    std::fs::set_permissions(pod.disk(), std::fs::Permissions::from_mode(0o640)).unwrap();

    // A stage is repeated if its pod is restarted.
    stage(&mut pod, "first", "second", "20Mi");
    for _ in 0..2 {
        let finished = pod.assert_succeeds_with(SUCCESS);
        assert!(finished.stderr.contains("New phase: MergeDelta"), "{}", finished.stderr);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
        disk::assert_same(&pod.disk(), &delta.raw, 8 * MIB, "the second stage");
        let metadata = pod.disk().metadata().unwrap();
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o7777), (9 * MIB, 0o640));
    }
    let formats: Vec<_> = engine.transfers().into_iter().map(|t| (t.format, t.subject)).collect();
    let expected = [("raw", "first"), ("cow", "second"), ("cow", "second")];
    assert_eq!(formats, expected.map(|(format, subject)| (format.to_owned(), subject.to_owned())));
    assert_ended(&engine, "finished_success");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_that_does_not_fit_is_refused_and_the_disk_stays() {
    let place = Place::new();
    let (_delta, engine) = warm(&place);
    let mut pod = pod(&engine);
    let refused = "Unable to process data: Unable to apply delta to base image: ";
    stage(&mut pod, "first", "second", "20Mi");
    let disk = pod.disk().display().to_string();
    let words = format!("unable to write to file: open {disk}: no such file or directory");
    pod.assert_fails_with(&format!("{refused}{words}"));

    stage(&mut pod, "", "first", "9Mi");
    pod.assert_succeeds_with(SUCCESS);
    let before = std::fs::read(pod.disk()).unwrap();
    stage(&mut pod, "zeroth", "second", "9Mi");
    assert_eq!(pod.run().code(), 1);
    let words = "snapshot backing file 'first' does not match expected checkpoint 'zeroth', unable to safely rebase snapshot";
    assert_eq!(pod.message(), Some(format!("{refused}{words}")));
    assert!(std::fs::read(pod.disk()).unwrap() == before, "the disk was touched");
    assert_ended(&engine, "finished_success");
}

#[test]
fn strangers_and_archives_are_refused() {
    let engine = Engine::start(raw_disk(sparse(1)));
    let mut pod = pod(&engine);
    pod.set("IMPORTER_CONTENTTYPE", "archive");
    let text = "Unsupported content type archive when importing from imageio";
    pod.run().assert_failure(1, text);
    assert!(engine.calls().is_empty(), "{:?}", engine.calls());
    pod.set("IMPORTER_CONTENTTYPE", "kubevirt");
    pod.set("IMPORTER_SECRET_KEY", "wrong");
    pod.run().assert_failure(1, "Cannot authenticate user");
    let message = pod.message().unwrap_or_default();
    assert!(message.starts_with("Unable to connect to imageio data source: "), "{message}");
    assert!(!pod.disk().exists());
}
