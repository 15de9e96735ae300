//! Checksums of whole objects: the expected one, and the one of the bytes that arrived.

mod hashing;

use std::fmt;
use std::str::FromStr;

use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

pub use self::hashing::HashingThread;

/// The supported digest algorithms: the hash functions that CDI's `checksum` field may contain,
/// and the checksums that object stores announce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DigestAlgorithm {
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-1 (FIPS 180-4).
    Sha1,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// The CRC of gzip and zip (RFC 1952 §8).
    Crc32,
    /// The CRC by Castagnoli, used by iSCSI (RFC 3720 §12.1).
    Crc32c,
    /// NVM Command Set Specification §5.2.1.3.4. S3 adds this checksum by default.
    Crc64Nvme,
}

impl DigestAlgorithm {
    /// The algorithms that a user may request. A CRC only detects damage; anybody can forge it.
    pub const REQUESTABLE: [Self; 4] = [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Crc32 => "crc32",
            Self::Crc32c => "crc32c",
            Self::Crc64Nvme => "crc64nvme",
        }
    }

    /// Length of the digest in bytes.
    const fn digest_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Length of the digest in hexadecimal digits.
    const fn hex_digits(self) -> usize {
        self.digest_bytes() * 2
    }
}

impl fmt::Display for DigestAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a checksum cannot be used. The messages are spelled as in CDI's importer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// The text has no colon.
    #[error("invalid checksum format: expected 'algorithm:hash', got '{0}'")]
    Format(String),
    /// The colon is at the end of the text.
    #[error("checksum hash value cannot be empty")]
    Empty,
    /// The algorithm is not supported.
    #[error(
        "unsupported hash algorithm '{0}': supported algorithms are: md5, sha1, sha256, sha512"
    )]
    Algorithm(String),
    /// The hash has too few or too many digits.
    #[error("invalid {algorithm} hash length: expected {expected} hex characters, got {got}")]
    Length {
        /// The algorithm in the text.
        algorithm: DigestAlgorithm,
        /// Number of hexadecimal digits of its hashes.
        expected: usize,
        /// Number of bytes in the text.
        got: usize,
    },
    /// The hash contains this character, which is not a hexadecimal digit.
    #[error("checksum hash is not valid hexadecimal: invalid byte {0:?}")]
    Hex(char),
}

/// An expected digest. As text: `algorithm:hex` in upper or lower case, with optional spaces
/// around either part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    algorithm: DigestAlgorithm,
    hex: String,
}

impl Checksum {
    /// Creates the expected digest from the `bytes` that a source announces. `None` if their
    /// number does not match the algorithm.
    pub fn from_bytes(algorithm: DigestAlgorithm, bytes: &[u8]) -> Option<Self> {
        (bytes.len() == algorithm.digest_bytes())
            .then(|| Self { algorithm, hex: hex::encode(bytes) })
    }

    /// The algorithm of the digest.
    pub fn algorithm(&self) -> DigestAlgorithm {
        self.algorithm
    }

    /// Compares with `calculated`, the result of [`RunningDigest::finish_digest`].
    pub fn verify(&self, calculated: &str) -> Result<(), ChecksumMismatchError> {
        let expected = self.to_string();
        if expected == calculated {
            return Ok(());
        }
        Err(ChecksumMismatchError { expected, calculated: calculated.to_owned() })
    }
}

/// The error for bytes whose digest is not the expected one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("checksum mismatch: expected {expected}, calculated {calculated}")]
pub struct ChecksumMismatchError {
    /// The requested digest, as `algorithm:hex`.
    pub expected: String,
    /// The digest of the received bytes, as `algorithm:hex`.
    pub calculated: String,
}

/// Returns the beginning of `text` for error messages, with unprintable characters escaped. The
/// text may come from an untrusted header.
fn printable_excerpt(text: &str) -> String {
    /// Longer than every valid text: `sha512:` with its digits has 135 characters.
    const MOST_CHARS: usize = 160;
    printable::escape_prefix(text.as_bytes(), MOST_CHARS)
}

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, ChecksumError> {
        let Some((name, hash)) = text.trim().split_once(':') else {
            return Err(ChecksumError::Format(printable_excerpt(text)));
        };
        let (name, hex) = (name.trim().to_lowercase(), hash.trim().to_lowercase());
        if hex.is_empty() {
            return Err(ChecksumError::Empty);
        }
        // CRCs are not accepted here: a user who requests a checksum also wants to detect forgery,
        // and a CRC detects only damage.
        let Some(algorithm) =
            DigestAlgorithm::REQUESTABLE.into_iter().find(|known| known.name() == name)
        else {
            return Err(ChecksumError::Algorithm(printable_excerpt(&name)));
        };
        let (expected, got) = (algorithm.hex_digits(), hex.len());
        if got != expected {
            return Err(ChecksumError::Length { algorithm, expected, got });
        }
        match hex.chars().find(|digit| !digit.is_ascii_hexdigit()) {
            Some(other) => Err(ChecksumError::Hex(other)),
            None => Ok(Self { algorithm, hex }),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex)
    }
}

/// A running digest of the bytes that arrive.
pub struct RunningDigest {
    algorithm: DigestAlgorithm,
    state: DigestState,
}

enum DigestState {
    Hash(Box<dyn DynDigest + Send>),
    Crc(Box<crc_fast::Digest>),
}

impl RunningDigest {
    /// Starts a digest to which no bytes have been added.
    pub fn new(algorithm: DigestAlgorithm) -> Self {
        let crc = |parameters| DigestState::Crc(Box::new(crc_fast::Digest::new(parameters)));
        let state = match algorithm {
            DigestAlgorithm::Md5 => DigestState::Hash(Box::<Md5>::default()),
            DigestAlgorithm::Sha1 => DigestState::Hash(Box::<Sha1>::default()),
            DigestAlgorithm::Sha256 => DigestState::Hash(Box::<Sha256>::default()),
            DigestAlgorithm::Sha512 => DigestState::Hash(Box::<Sha512>::default()),
            DigestAlgorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            DigestAlgorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            DigestAlgorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
        };
        Self { algorithm, state }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            DigestState::Hash(hash) => hash.update(bytes),
            DigestState::Crc(crc) => crc.update(bytes),
        }
    }

    /// Returns the digest of all bytes as `algorithm:hex`.
    pub fn finish_digest(self) -> String {
        let hex = match self.state {
            DigestState::Hash(hash) => hex::encode(hash.finalize()),
            // A CRC is printed in big-endian order, with leading zeros.
            DigestState::Crc(crc) => {
                format!("{:0width$x}", crc.finalize(), width = self.algorithm.hex_digits())
            }
        };
        format!("{}:{hex}", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// The hashes of `abc` from RFC 1321 §A.5 and the examples to FIPS 180-4.
    const ABC: [&str; 4] = [
        "md5:900150983cd24fb0d6963f7d28e17f72",
        "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
         2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    ];

    fn refusal(text: &str) -> String {
        text.parse::<Checksum>().unwrap_err().to_string()
    }

    #[test]
    fn published_examples_match_in_any_split_and_case() {
        for example in ABC {
            let checksum: Checksum = example.parse().unwrap();
            let mut digest = RunningDigest::new(checksum.algorithm());
            digest.update(b"a");
            digest.update(b"");
            digest.update(b"bc");
            let calculated = digest.finish_digest();
            assert_eq!(calculated, example);
            assert!(checksum.verify(&calculated).is_ok());

            let (name, hash) = example.split_once(':').unwrap();
            let shouted = format!("  {} :  {}\n", name.to_uppercase(), hash.to_uppercase());
            assert_eq!(shouted.parse(), Ok(checksum));
        }
    }

    #[test]
    fn crcs_match_their_catalogued_check_values() {
        // The check values for "123456789" of CRC-32/ISO-HDLC, CRC-32/ISCSI and CRC-64/NVME in
        // Greg Cook's catalogue.
        for (algorithm, check) in [
            (DigestAlgorithm::Crc32, &[0xCB, 0xF4, 0x39, 0x26][..]),
            (DigestAlgorithm::Crc32c, &[0xE3, 0x06, 0x92, 0x83]),
            (DigestAlgorithm::Crc64Nvme, &[0xAE, 0x8B, 0x14, 0x86, 0x0A, 0x79, 0x98, 0x88]),
        ] {
            let mut digest = RunningDigest::new(algorithm);
            digest.update(b"1234");
            digest.update(b"56789");
            let expected = Checksum::from_bytes(algorithm, check).unwrap();
            assert!(expected.verify(&digest.finish_digest()).is_ok(), "{algorithm}");
            assert_eq!(Checksum::from_bytes(algorithm, &check[1..]), None);
            // Users cannot request a CRC as a checksum, whatever its length.
            assert!(expected.to_string().parse::<Checksum>().is_err());
        }
        assert_eq!(RunningDigest::new(DigestAlgorithm::Crc32).finish_digest(), "crc32:00000000");
    }

    #[test]
    fn a_mismatch_shows_both_checksums_as_the_controllers_expect() {
        let checksum: Checksum = ABC[0].parse().unwrap();
        let calculated = RunningDigest::new(DigestAlgorithm::Md5).finish_digest();
        assert_eq!(
            Error::from(checksum.verify(&calculated).unwrap_err()).to_string(),
            "checksum validation failed: checksum mismatch: expected md5:900150983cd24fb0d6963f7d28e17f72, \
             calculated md5:d41d8cd98f00b204e9800998ecf8427e"
        );
    }

    #[test]
    fn unusable_checksums_are_refused_with_the_messages_of_cdi() {
        assert_eq!(refusal("abc"), "invalid checksum format: expected 'algorithm:hash', got 'abc'");
        assert_eq!(refusal(""), "invalid checksum format: expected 'algorithm:hash', got ''");
        assert_eq!(refusal("sha256: "), "checksum hash value cannot be empty");
        assert_eq!(
            refusal("CRC32:00"),
            "unsupported hash algorithm 'crc32': supported algorithms are: md5, sha1, sha256, sha512"
        );
        assert_eq!(
            refusal(&format!("{}0", ABC[1])),
            "invalid sha1 hash length: expected 40 hex characters, got 41"
        );
        assert_eq!(
            refusal(&ABC[0].replace('9', "z")),
            "checksum hash is not valid hexadecimal: invalid byte 'z'"
        );
    }

    #[test]
    fn refused_text_is_shortened_and_escaped() {
        // Control and formatting characters are escaped, because the text may be sent in a header.
        assert!(
            refusal("sha\t:0").contains("algorithm 'sha': "),
            "spaces around the name do not count"
        );
        assert!(refusal("sha\t2:0").contains("algorithm 'sha\\t2': "));
        assert!(refusal("\u{202e}").contains("got '\\u{202e}'"));
        assert!(refusal(&"x".repeat(100_000)).len() < 300);
        assert!(refusal(&format!("{}:0", "x".repeat(100_000))).len() < 300);
    }
}
