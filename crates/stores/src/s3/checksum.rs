//! The checksum that S3 keeps for an object.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use stream::digest::{Checksum, DigestAlgorithm};

use fetch::http::header_text;

/// Header with the type of the checksum: of the object's bytes, or of the checksums of its parts.
const KIND: &str = "x-amz-checksum-type";

/// Headers with checksums, the cheapest to verify first (S3 API reference, GetObject).
const HEADERS: [(&str, DigestAlgorithm); 5] = [
    ("x-amz-checksum-crc64nvme", DigestAlgorithm::Crc64Nvme),
    ("x-amz-checksum-crc32c", DigestAlgorithm::Crc32c),
    ("x-amz-checksum-crc32", DigestAlgorithm::Crc32),
    ("x-amz-checksum-sha256", DigestAlgorithm::Sha256),
    ("x-amz-checksum-sha1", DigestAlgorithm::Sha1),
];

/// Returns the checksum that the bytes of the object can be compared with. A checksum of
/// checksums, `…-N` for N parts, cannot be verified by a reader that does not know the parts.
pub(super) fn announced_checksum(headers: &HeaderMap) -> Option<Checksum> {
    if header_text(headers, KIND).is_some_and(|kind| !kind.eq_ignore_ascii_case("FULL_OBJECT")) {
        return None;
    }
    HEADERS.iter().find_map(|(name, algorithm)| {
        let bytes = BASE64_STANDARD.decode(header_text(headers, *name)?).ok()?;
        Checksum::from_bytes(*algorithm, &bytes)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn read(pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        announced_checksum(&pairs.collect()).map(|checksum| checksum.to_string())
    }

    #[test]
    fn only_checksums_of_the_whole_object_are_used() {
        let crc32 = ("x-amz-checksum-crc32", "y/Q5Jg==");
        let crc64 = ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=");
        assert_eq!(read(&[crc32]).as_deref(), Some("crc32:cbf43926"));
        assert_eq!(read(&[crc32, crc64]).as_deref(), Some("crc64nvme:ae8b14860a799888"));
        assert_eq!(read(&[crc32, (KIND, "full_object")]).as_deref(), Some("crc32:cbf43926"));
        for nothing in [
            &[][..],
            &[crc32, (KIND, "COMPOSITE")],
            &[("x-amz-checksum-crc32", "y/Q5Jg==-3")],
            &[("x-amz-checksum-crc32", "y/Q5")],
            &[("x-amz-checksum-sha256", "not base64")],
        ] {
            assert_eq!(read(nothing), None, "{nothing:?}");
        }
    }
}
