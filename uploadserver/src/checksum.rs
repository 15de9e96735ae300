//! The checksum that a client announces for its object. The checksum is in a header, or in a
//! trailer that a header announces.
//!
//! `x-cdi-checksum: sha256:<hex>` uses the importer's notation. `Content-Digest` and `Repr-Digest`
//! follow RFC 9530, and `Digest` follows RFC 3230; all three use base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};
use stream::digest::{Checksum, ChecksumError, DigestAlgorithm};
// The value of this header is `algorithm:hex`. It is only the algorithm if the checksum itself
// follows after the last byte.
use program::cdi::CHECKSUM_HEADER as OWN;

/// Standard headers that contain a list of digests.
const DIGESTS: [&str; 3] = ["content-digest", "repr-digest", "digest"];

/// Headers that contain a digest of the bytes of one request, which may be only a part of the
/// object.
const PART_DIGESTS: [&str; 3] = ["content-digest", "digest", "upload-checksum"];

/// Algorithms of the standard headers, under the names used there. Other algorithms in a list are
/// ignored, as RFC 9530 requires.
const ALGORITHMS: [(&str, DigestAlgorithm); 4] = [
    ("sha-512", DigestAlgorithm::Sha512),
    ("sha-256", DigestAlgorithm::Sha256),
    ("sha", DigestAlgorithm::Sha1),
    ("md5", DigestAlgorithm::Md5),
];

/// An additional algorithm that only our own header accepts, besides
/// [`DigestAlgorithm::REQUESTABLE`]. A client that sends over TLS only needs to detect damage, and
/// on a processor without SHA instructions, computing SHA-256 takes longer than all other work of
/// an upload.
const OF_DAMAGE: DigestAlgorithm = DigestAlgorithm::Crc64Nvme;

/// Algorithms that are computed if the digest is sent in a trailer: the ones that RFC 9530 lists
/// as active. Both are computed because only the trailer names the one in use.
const TRAILER_ALGORITHMS: [DigestAlgorithm; 2] = [DigestAlgorithm::Sha256, DigestAlgorithm::Sha512];

/// The checksum that a client announces when an upload begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AnnouncedChecksum {
    /// No checksum was announced.
    #[default]
    None,
    /// A checksum that the client sent before the bytes.
    Known(Checksum),
    /// A checksum by one of these algorithms, sent after the bytes: in the trailer, or in the last
    /// request of a resumable upload.
    Later(Vec<DigestAlgorithm>),
}

/// Reasons why a checksum header is rejected: it is malformed, or cannot be used with this
/// request.
#[derive(Debug, thiserror::Error)]
pub enum AnnouncedChecksumError {
    #[error("invalid checksum in {OWN}: {0}")]
    Own(#[from] ChecksumError),
    #[error("{0} is not text")]
    NotText(&'static str),
    #[error("invalid digest in {0}: use for example sha-256=:<base64>:")]
    Digest(&'static str),
    #[error("{0} contains no supported algorithm: use sha-256 or sha-512")]
    Algorithm(&'static str),
    #[error(
        "{0} is the checksum of a part: give the checksum of the whole in {OWN} or repr-digest when the upload begins"
    )]
    OfPart(&'static str),
    #[error("{0} is the checksum of the form, not of the file in it: use {OWN} with forms")]
    OfForm(&'static str),
}

/// Returns the checksum that the first request of a resumable upload announces. If the header
/// names only an algorithm, the last request may contain the checksum.
pub fn promised_of_parts(headers: &HeaderMap) -> Result<AnnouncedChecksum, AnnouncedChecksumError> {
    match headers.get(OWN).and_then(named) {
        Some(algorithm) => Ok(AnnouncedChecksum::Later(vec![algorithm])),
        None => promised(headers, false),
    }
}

/// Returns the checksum that a request with the whole object announces.
pub fn promised(
    headers: &HeaderMap,
    is_form: bool,
) -> Result<AnnouncedChecksum, AnnouncedChecksumError> {
    let announced = headers.get_all(header::TRAILER).iter().any(|names| {
        let names = names.to_str().unwrap_or_default().to_lowercase();
        let mut names = names.split(',').map(str::trim);
        names.any(|name| name == OWN || DIGESTS.contains(&name))
    });
    let is_trailed = announced && !is_form;
    if let Some(algorithm) = headers.get(OWN).and_then(named) {
        if is_trailed {
            return Ok(AnnouncedChecksum::Later(vec![algorithm]));
        }
        // Without a trailer, the checksum itself can never follow. Parsing the algorithm name
        // alone fails and returns the right error.
        return Ok(AnnouncedChecksum::Known(algorithm.name().parse()?));
    }
    if let Some(checksum) = stated(headers, is_form)? {
        return Ok(AnnouncedChecksum::Known(checksum));
    }
    if is_trailed {
        return Ok(AnnouncedChecksum::Later(TRAILER_ALGORITHMS.into()));
    }
    Ok(AnnouncedChecksum::None)
}

/// Rejects checksums of parts, because the server does not verify them and the sender would assume
/// that it does.
pub(crate) fn refuse_of_part(headers: &HeaderMap) -> Result<(), AnnouncedChecksumError> {
    let found = PART_DIGESTS.into_iter().find(|name| headers.contains_key(*name));
    found.map_or(Ok(()), |name| Err(AnnouncedChecksumError::OfPart(name)))
}

/// Returns the checksum in a header or in trailers, if there is one.
pub(crate) fn stated(
    headers: &HeaderMap,
    is_form: bool,
) -> Result<Option<Checksum>, AnnouncedChecksumError> {
    if let Some(value) = headers.get(OWN).filter(|value| named(value).is_none()) {
        let text = value.to_str().map_err(|_| AnnouncedChecksumError::NotText(OWN))?;
        return own(text).map(Some);
    }
    for name in DIGESTS {
        let Some(value) = headers.get(name) else { continue };
        if is_form {
            return Err(AnnouncedChecksumError::OfForm(name));
        }
        let text = value.to_str().map_err(|_| AnnouncedChecksumError::NotText(name))?;
        return digest(name, text).map(Some);
    }
    Ok(None)
}

/// Returns the algorithm if the header names only an algorithm and contains no checksum.
fn named(value: &HeaderValue) -> Option<DigestAlgorithm> {
    let text = value.to_str().ok()?.trim();
    let mut known = DigestAlgorithm::REQUESTABLE.into_iter().chain([OF_DAMAGE]);
    known.find(|algorithm| algorithm.name().eq_ignore_ascii_case(text))
}

/// Parses a checksum in the format of our own header.
fn own(text: &str) -> Result<Checksum, AnnouncedChecksumError> {
    let crc = text.trim().split_once(':').filter(|(name, _)| *name == OF_DAMAGE.name());
    let crc =
        crc.and_then(|(_, digits)| Checksum::from_bytes(OF_DAMAGE, &hex::decode(digits).ok()?));
    crc.map_or_else(|| Ok(text.parse()?), Ok)
}

/// Returns the strongest digest in a list such as `sha-256=:…:, sha-512=:…:`.
fn digest(header: &'static str, text: &str) -> Result<Checksum, AnnouncedChecksumError> {
    let entries: Vec<(String, &str)> = text
        .split(',')
        .filter_map(|entry| entry.trim().split_once('='))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim()))
        .collect();
    let (algorithm, value) = ALGORITHMS
        .iter()
        .find_map(|(name, algorithm)| {
            let (_, value) = entries.iter().find(|(known, _)| known == name)?;
            Some((algorithm, *value))
        })
        .ok_or(AnnouncedChecksumError::Algorithm(header))?;
    // RFC 9530 encloses the base64 in colons (a byte sequence of RFC 8941); RFC 3230 does not.
    let base64 = value.strip_prefix(':').and_then(|value| value.strip_suffix(':')).unwrap_or(value);
    let bytes = STANDARD.decode(base64).map_err(|_| AnnouncedChecksumError::Digest(header))?;
    format!("{algorithm}:{}", hex::encode(bytes))
        .parse()
        .map_err(|_| AnnouncedChecksumError::Digest(header))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    /// SHA-256 of the empty input.
    const HEX: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const BASE64: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).unwrap();
        HeaderMap::from_iter([(HeaderName::from_static(name), value)])
    }

    #[test]
    fn a_checksum_in_a_trailer_is_announced_first() {
        let announced = headers("trailer", "X-Other, Content-Digest");
        let later = |algorithms: &[DigestAlgorithm]| AnnouncedChecksum::Later(algorithms.into());
        assert_eq!(promised(&announced, false).unwrap(), later(&TRAILER_ALGORITHMS));
        for (name, algorithm) in [("crc64nvme", OF_DAMAGE), (" SHA512 ", DigestAlgorithm::Sha512)] {
            let mut headers = headers(OWN, name);
            assert_eq!(promised_of_parts(&headers).unwrap(), later(&[algorithm]));
            promised(&headers, false).unwrap_err();
            headers.insert("trailer", HeaderValue::from_static(OWN));
            assert_eq!(promised(&headers, false).unwrap(), later(&[algorithm]));
            promised(&headers, true).unwrap_err();
        }
        assert_eq!(promised(&announced, true).unwrap(), AnnouncedChecksum::None);
        assert_eq!(
            promised(&headers("trailer", "x-other"), false).unwrap(),
            AnnouncedChecksum::None
        );
        let trailers = headers("content-digest", &format!("sha-256=:{BASE64}:"));
        assert_eq!(stated(&trailers, false).unwrap(), Some(HEX.parse().unwrap()));
    }

    #[test]
    fn checksums_that_cannot_be_verified_are_refused() {
        for (name, value) in [
            (OWN, "sha256:12"),
            (OWN, "crc32:12345678"),
            (OWN, "crc32"),
            (OWN, "crc64nvme:1234567"),
            (OWN, "crc64nvme:12345678"),
            ("digest", "sha-256=%%%"),
            ("digest", "sha-256=AAAA"),
            ("content-digest", "unixsum=7"),
            ("repr-digest", "nonsense"),
        ] {
            promised(&headers(name, value), false).unwrap_err();
        }
        promised(&headers("content-digest", &format!("sha-256=:{BASE64}:")), true).unwrap_err();
        promised(&headers(OWN, HEX), true).unwrap();
        refuse_of_part(&headers("upload-checksum", "sha1 x")).unwrap_err();
        refuse_of_part(&headers("repr-digest", "sha-256=:x:")).unwrap();
    }
}
