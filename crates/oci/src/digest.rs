//! Digests of blobs, by which blobs are named.

use std::fmt;

use stream::digest::{Checksum, ChecksumError, DigestAlgorithm, RunningDigest as Hash};
use stream::error::{SourceError, SourceErrorKind};

/// A digest `sha256:…` or `sha512:…` in lower-case hexadecimal (OCI image specification,
/// "Digests"). It is safe to use in paths and URLs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct OciDigest(Checksum);

impl OciDigest {
    /// Returns the checksum that a [`VerifiedBody`](fetch::verified::VerifiedBody) compares with.
    pub(super) fn to_checksum(&self) -> Checksum {
        self.0.clone()
    }

    /// Computes the SHA-256 digest of `bytes`.
    pub fn sha256_of(bytes: &[u8]) -> Result<Self, SourceError> {
        let checksum = hash_hex(DigestAlgorithm::Sha256, bytes).parse();
        checksum.map(Self).map_err(|error: ChecksumError| {
            SourceError::from_cause(SourceErrorKind::Invalid, error)
        })
    }

    /// Fails unless this is the digest of `bytes`; `what` names the object in the error.
    pub(super) fn verify_bytes(&self, bytes: &[u8], what: &str) -> Result<(), SourceError> {
        let calculated = hash_hex(self.0.algorithm(), bytes);
        if calculated == self.to_string() {
            return Ok(());
        }
        let message =
            format!("{what}: the received bytes have {calculated}, the source announced {self}");
        Err(SourceError::new(SourceErrorKind::Digest, message))
    }

    /// Returns the algorithm and the hexadecimal digits.
    pub(super) fn as_parts(&self) -> (&'static str, String) {
        let text = self.to_string();
        let hex = text.split_once(':').map(|(_, hex)| hex.to_owned()).unwrap_or_default();
        (self.0.algorithm().name(), hex)
    }

    /// Returns the tag that stands for this digest (OCI distribution specification, "Referrers Tag
    /// Schema"): at most 64 of its digits.
    pub(super) fn to_tag(&self) -> String {
        let (algorithm, hex) = self.as_parts();
        format!("{algorithm}-{}", hex.get(..64).unwrap_or(&hex))
    }

    /// Returns the path of the blob in an OCI layout.
    pub fn blob_path(&self) -> String {
        format!("blobs/{}", self.to_string().replace(':', "/"))
    }
}

fn hash_hex(algorithm: DigestAlgorithm, bytes: &[u8]) -> String {
    let mut hash = Hash::new(algorithm);
    hash.update(bytes);
    hash.finish_digest()
}

impl TryFrom<String> for OciDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused = || format!("{text:?} is not a SHA-256 or SHA-512 digest");
        let checksum: Checksum = text.parse().map_err(|_| refused())?;
        let is_known =
            matches!(checksum.algorithm(), DigestAlgorithm::Sha256 | DigestAlgorithm::Sha512);
        // Checksums from users may be in any case and have spaces around them; digests may not.
        if is_known && checksum.to_string() == text { Ok(Self(checksum)) } else { Err(refused()) }
    }
}

impl fmt::Display for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_digests_are_refused() {
        let digest = OciDigest::sha256_of(b"abc").unwrap();
        assert!(digest.verify_bytes(b"abc", "x").is_ok());
        assert!(digest.verify_bytes(b"abd", "x").is_err());
        let text = digest.to_string();
        // An example of FIPS 180-4.
        assert_eq!(&text[..15], "sha256:ba7816bf");
        assert_eq!(digest.to_tag(), text.replace(':', "-"));
        let long = OciDigest::try_from(format!("sha512:{}", "0a".repeat(64))).unwrap();
        assert_eq!(long.to_tag(), format!("sha512-{}", "0a".repeat(32)));
        assert_eq!(digest.blob_path(), text.replace("sha256:", "blobs/sha256/"));
        for other in [
            text.to_uppercase(),
            format!(" {text}"),
            text[..70].to_owned(),
            "md5:900150983cd24fb0d6963f7d28e17f72".to_owned(),
            "sha256:../../../etc/passwd".to_owned(),
        ] {
            assert!(OciDigest::try_from(other).is_err());
        }
    }
}
