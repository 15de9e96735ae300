//! The whole program with object stores, as a command and in a pod.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::tools;

use super::*;
use crate::place::Place;
use crate::pod::Pod;

/// An image, and its forms with their names: qcow2, and compressed once more.
fn image(place: &Place) -> (testkit::images::Image, [(&'static str, Vec<u8>); 2]) {
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    let image = spec.build(&place.path(""), "image");
    let qcow2 = std::fs::read(&image.qcow2).or_fail("qcow2");
    let gz = tools::filter("gzip", ["-c", "-1"], &qcow2);
    (image, [("disk.qcow2", qcow2), ("disk.qcow2.gz", gz)])
}

#[test]
#[ignore = "server: object stores"]
fn pods_import_from_s3_and_google() {
    let place = Place::new();
    let (image, forms) = image(&place);
    let keys = [("IMPORTER_ACCESS_KEY_ID", ACCESS_KEY), ("IMPORTER_SECRET_KEY", SECRET_KEY)];
    for (store, kind, keys) in [(&*S3S, "s3", &keys[..]), (&GCS, "gcs", &[])] {
        let endpoint = |key: &str| format!("http://{}/{BUCKET}/{key}", store.address());
        let pod = |key: &str| {
            let source = [("IMPORTER_SOURCE", kind), ("IMPORTER_ENDPOINT", &*endpoint(key))];
            Pod::new(&[&source, keys].concat())
        };
        for (key, content) in &forms {
            store.put(key, content);
            let pod = pod(key);
            pod.run().assert_success(kind);
            disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, key);
        }
        let absent = pod("none");
        assert_eq!(absent.run().code(), 1, "{kind}");
        let expected = format!(
            "Unable to connect to {kind} data source: could not get {kind} object: \"{BUCKET}/none\": NoSuchKey"
        );
        let message = absent.message().or_fail("a message");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
#[ignore = "server: object stores"]
fn damage_in_transit_leaves_no_disk() {
    let place = Place::new();
    let (_, forms) = image(&place);
    for (key, content) in forms {
        let key = format!("damaged/{key}");
        GCS.put(&key, &content);
        // A change in the data, which neither the format nor gzip is sure to reveal.
        let plan = Plan::of(vec![Fault::Corrupt(content.len() as u64 / 2)]);
        let gateway = Gateway::start(GCS.address(), plan).unwrap();
        let import = place.import(&format!("gs://{BUCKET}/{key}"));
        let finished = import.env("STORAGE_EMULATOR_HOST", gateway.address().to_string()).run();
        assert_ne!(finished.code(), 0, "{key}");
        assert!(!finished.crashed() && !place.target().exists(), "{key}: {}", finished.stderr);
    }
}
