//! Blank disks.

use std::os::unix::fs::MetadataExt;

use testkit::fail::OrFail;

use super::pod::Pod;

#[test]
fn a_blank_disk_has_the_usable_size() {
    for (preallocate, message) in [
        ("false", r#"{"preallocationApplied":false,"message":"Import Complete"}"#),
        ("true", r#"{"preallocationApplied":true,"message":"Import Complete"}"#),
    ] {
        let source = ("IMPORTER_SOURCE", "none");
        let pod =
            Pod::new(&[source, ("IMPORTER_IMAGE_SIZE", "100Mi"), ("PREALLOCATION", preallocate)]);
        pod.assert_succeeds_with(message);
        let metadata = pod.disk().metadata().or_fail("metadata");
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (98_566_144, 0o660));
        assert_eq!(
            metadata.blocks() * 512 >= metadata.len(),
            preallocate == "true",
            "{} blocks",
            metadata.blocks()
        );
    }
}

#[test]
fn a_blank_disk_needs_a_size_and_cannot_be_an_archive() {
    let blank = ("IMPORTER_SOURCE", "none");
    Pod::new(&[blank, ("IMPORTER_CONTENTTYPE", "archive"), ("IMPORTER_IMAGE_SIZE", "1Mi")])
        .assert_fails_with("Cannot create empty disk with content type archive");
    Pod::new(&[blank]).assert_fails_with(
        "Unable to process data: environment variable IMPORTER_IMAGE_SIZE: is not set or empty, \
         and a blank disk has no other size",
    );
}

#[test]
fn a_blank_disk_larger_than_the_volume_is_reduced_with_a_warning() {
    let pod = Pod::new(&[("IMPORTER_SOURCE", "none"), ("IMPORTER_IMAGE_SIZE", "4Ei")]);
    let finished =
        pod.assert_succeeds_with(r#"{"preallocationApplied":false,"message":"Import Complete"}"#);
    assert!(
        finished.stderr.contains(
            "Available space less than requested size, creating blank image sized to available"
        ),
        "{}",
        finished.stderr
    );
}
