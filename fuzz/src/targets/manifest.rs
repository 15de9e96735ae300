//! Parses any document of a registry, an OCI layout, oVirt's image server or an OVF package:
//! digests become paths of blobs only, extents follow each other, checksums occur in the manifest,
//! and errors are printable messages.

use bytes::Bytes;
use hypervisors::imageio::parse_extents;
use oci::digest::OciDigest;
use oci::manifest::{ImageConfig, ParsedManifest, ServedManifest};
use oci::platform::WantedPlatforms;
use oci::refusal::error_summary;
use stream::error::{SourceError, SourceErrorKind};

use crate::assert_sentence;

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

/// Returns the paths in a layout of everything that a manifest refers to: configuration and
/// layers, or the one image in an index for `architecture`.
fn manifest(
    text: &[u8],
    media_type: Option<&str>,
    architecture: &str,
) -> Result<Vec<String>, String> {
    let served = ServedManifest {
        digest: OciDigest::sha256_of(b"").map_err(|error| error.to_string())?,
        media_type: media_type.map(str::to_owned),
        bytes: Bytes::copy_from_slice(text),
    };
    let named = match ParsedManifest::parse(&served)? {
        ParsedManifest::Image(image) => [vec![image.config], image.layers].concat(),
        ParsedManifest::Index(index) => {
            vec![WantedPlatforms::new(Some(architecture)).choose_image(&index)?.clone()]
        }
    };
    Ok(named.iter().map(|descriptor| descriptor.digest.blob_path()).collect())
}

pub fn run(data: &[u8]) {
    for media_type in MEDIA_TYPES {
        match manifest(data, media_type, "arm64") {
            Ok(paths) => assert!(paths.iter().all(|path| is_path_of_blob(path)), "{paths:?}"),
            Err(reason) => assert_reason(reason),
        }
    }
    if let Err(reason) = ImageConfig::parse(data) {
        assert_reason(reason);
    }
    assert_sentence(&error_summary(data).0);
    match parse_extents(data) {
        Ok(extents) => {
            let (mut end, mut before) = (0, None);
            for extent in extents {
                let extent_end = extent.end_offset();
                assert!(extent.start == end && extent_end > end && before != Some(extent.zero));
                (end, before) = (extent_end, Some(extent.zero));
            }
        }
        Err(error) => assert_sentence(&error.to_string()),
    }
    check_package(data);
}

/// Checks a manifest of an OVF package.
fn check_package(data: &[u8]) {
    match tar::manifest::find_checksums(data, b"disk.vmdk") {
        Ok(checksums) => {
            let text = String::from_utf8_lossy(data).to_ascii_lowercase();
            for checksum in checksums {
                let checksum = checksum.to_string();
                let (_, hex) = checksum.split_once(':').expect("an algorithm and digits");
                assert!(text.contains(hex), "{hex}");
            }
        }
        Err(error) => assert_sentence(&error.to_string()),
    }
}
