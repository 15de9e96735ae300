//! The checksum that S3 keeps of an object.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use datapath::digest::{Algorithm, Checksum};
use http::HeaderMap;

use crate::http::text;

/// Says which kind of checksum the object has: of its bytes, or of the checksums of its parts.
const KIND: &str = "x-amz-checksum-type";

/// The headers, the cheapest to verify first (S3 API reference, GetObject).
const HEADERS: [(&str, Algorithm); 5] = [
    ("x-amz-checksum-crc64nvme", Algorithm::Crc64Nvme),
    ("x-amz-checksum-crc32c", Algorithm::Crc32c),
    ("x-amz-checksum-crc32", Algorithm::Crc32),
    ("x-amz-checksum-sha256", Algorithm::Sha256),
    ("x-amz-checksum-sha1", Algorithm::Sha1),
];

/// Checksum that the bytes of the object can be compared with. Checksums of checksums, `…-N` for N parts, say nothing about them
/// to a reader that does not know the parts.
pub(super) fn announced(headers: &HeaderMap) -> Option<Checksum> {
    if text(headers, KIND).is_some_and(|kind| !kind.eq_ignore_ascii_case("FULL_OBJECT")) {
        return None;
    }
    HEADERS.iter().find_map(|(name, algorithm)| {
        let bytes = BASE64_STANDARD.decode(text(headers, *name)?).ok()?;
        Checksum::announced(*algorithm, &bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn read(pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        announced(&pairs.collect()).map(|checksum| checksum.to_string())
    }

    #[test]
    fn checksums_of_all_bytes_count() {
        let crc32 = ("x-amz-checksum-crc32", "y/Q5Jg==");
        let crc64 = ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=");
        assert_eq!(read(&[crc32]).as_deref(), Some("crc32:cbf43926"));
        assert_eq!(
            read(&[crc32, crc64]).as_deref(),
            Some("crc64nvme:ae8b14860a799888")
        );
        assert_eq!(
            read(&[crc32, (KIND, "full_object")]).as_deref(),
            Some("crc32:cbf43926")
        );
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
