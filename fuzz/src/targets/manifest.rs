//! Parses any document of a registry, an OCI layout, oVirt's image server or an OVF package:
//! digests become paths of blobs only, extents follow each other, checksums occur in the manifest,
//! and errors are printable messages.

use crate::assert_sentence;
use crate::source::imageio::extents;
use crate::source::registry::{configuration, manifest, refusal};
use datapath::error::{SourceError, SourceErrorKind};

const MEDIA_TYPES: [Option<&str>; 2] =
    [None, Some("application/vnd.docker.distribution.manifest.list.v2+json")];

/// Returns whether the path is that of a blob in an OCI layout.
fn is_path_of_blob(path: &str) -> bool {
    let [Some("blobs"), Some(algorithm), Some(hex), None] = ({
        let mut parts = path.split('/');
        [parts.next(), parts.next(), parts.next(), parts.next()]
    }) else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks a reason as a part of the importer's error message.
fn assert_reason(reason: String) {
    assert_sentence(&SourceError::new(SourceErrorKind::Invalid, reason).to_string());
}

pub fn run(data: &[u8]) {
    for media_type in MEDIA_TYPES {
        match manifest(data, media_type, "arm64") {
            Ok(paths) => assert!(paths.iter().all(|path| is_path_of_blob(path)), "{paths:?}"),
            Err(reason) => assert_reason(reason),
        }
    }
    if let Err(reason) = configuration(data) {
        assert_reason(reason);
    }
    assert_sentence(&refusal(data));
    match extents(data) {
        Ok(extents) => {
            let (mut end, mut before) = (0, None);
            for (range, zero) in extents {
                assert!(range.start == end && range.end > end && before != Some(zero));
                (end, before) = (range.end, Some(zero));
            }
        }
        Err(error) => assert_sentence(&error.to_string()),
    }
    #[cfg(fuzzing)]
    check_package(data);
}

/// Checks a manifest of an OVF package. Its parser is public only for the fuzzer.
#[cfg(fuzzing)]
fn check_package(data: &[u8]) {
    match datapath::archive::fuzzing::ovf_checksums(data, b"disk.vmdk") {
        Ok(checksums) => {
            let text = String::from_utf8_lossy(data).to_ascii_lowercase();
            for checksum in checksums {
                let checksum = checksum.to_string();
                let (_, hex) = checksum.split_once(':').expect("an algorithm and digits");
                assert!(text.contains(hex), "{hex}");
            }
        }
        Err(sentence) => assert_sentence(&sentence),
    }
}
