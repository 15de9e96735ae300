//! Checksums of whole objects: the one that was asked for, and the one of what arrived.

mod hashing;

use std::fmt;
use std::str::FromStr;

use md5::Md5;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

pub use self::hashing::Hashing;
use crate::error::Error;

/// A hash function that CDI's `checksum` field may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 1321.
    Md5,
    /// FIPS 180-4.
    Sha1,
    /// FIPS 180-4.
    Sha256,
    /// FIPS 180-4.
    Sha512,
}

impl Algorithm {
    const ALL: [Self; 4] = [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of the hash in hexadecimal digits.
    const fn hex_digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a checksum cannot be used. Spelled as CDI's importer spells it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// There is no colon.
    #[error("invalid checksum format: expected 'algorithm:hash', got '{0}'")]
    Format(String),
    /// Nothing follows the colon.
    #[error("checksum hash value cannot be empty")]
    Empty,
    /// The algorithm is none of ours.
    #[error("unsupported hash algorithm '{0}': supported algorithms are: md5, sha1, sha256, sha512")]
    Algorithm(String),
    /// Too few or too many digits.
    #[error("invalid {algorithm} hash length: expected {expected} hex characters, got {got}")]
    Length {
        /// The algorithm that was named.
        algorithm: Algorithm,
        /// Digits of its hashes.
        expected: usize,
        /// Bytes that were given.
        got: usize,
    },
    /// A character that is no hexadecimal digit.
    #[error("checksum hash is not valid hexadecimal: invalid byte {0:?}")]
    Hex(char),
}

/// A checksum that was asked for: `algorithm:hex`, in any case, with spaces around either part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    algorithm: Algorithm,
    hex: String,
}

impl Checksum {
    /// The hash function.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Compares with `calculated`, the result of [`Digest::finish`].
    pub fn verify(&self, calculated: &str) -> Result<(), Error> {
        let expected = self.to_string();
        if expected == calculated {
            return Ok(());
        }
        Err(Error::Checksum {
            expected,
            calculated: calculated.to_owned(),
        })
    }
}

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, ChecksumError> {
        let Some((name, hash)) = text.trim().split_once(':') else {
            return Err(ChecksumError::Format(text.to_owned()));
        };
        let (name, hex) = (name.trim().to_lowercase(), hash.trim().to_lowercase());
        if hex.is_empty() {
            return Err(ChecksumError::Empty);
        }
        let Some(algorithm) = Algorithm::ALL.into_iter().find(|known| known.name() == name) else {
            return Err(ChecksumError::Algorithm(name));
        };
        let (expected, got) = (algorithm.hex_digits(), hex.len());
        if got != expected {
            return Err(ChecksumError::Length {
                algorithm,
                expected,
                got,
            });
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

/// A running hash of the bytes that arrive.
pub struct Digest {
    algorithm: Algorithm,
    hasher: Box<dyn DynDigest + Send>,
}

impl Digest {
    /// The hash of nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        let hasher: Box<dyn DynDigest + Send> = match algorithm {
            Algorithm::Md5 => Box::<Md5>::default(),
            Algorithm::Sha1 => Box::<Sha1>::default(),
            Algorithm::Sha256 => Box::<Sha256>::default(),
            Algorithm::Sha512 => Box::<Sha512>::default(),
        };
        Self { algorithm, hasher }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// `algorithm:hex` of all bytes.
    pub fn finish(self) -> String {
        format!("{}:{}", self.algorithm, hex::encode(self.hasher.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let mut digest = Digest::new(checksum.algorithm());
            digest.update(b"a");
            digest.update(b"");
            digest.update(b"bc");
            let calculated = digest.finish();
            assert_eq!(calculated, example);
            assert!(checksum.verify(&calculated).is_ok());

            let (name, hash) = example.split_once(':').unwrap();
            let shouted = format!("  {} :  {}\n", name.to_uppercase(), hash.to_uppercase());
            assert_eq!(shouted.parse(), Ok(checksum));
        }
    }

    #[test]
    fn mismatch_shows_both_as_the_controllers_expect() {
        let checksum: Checksum = ABC[0].parse().unwrap();
        let calculated = Digest::new(Algorithm::Md5).finish();
        assert_eq!(
            checksum.verify(&calculated).unwrap_err().to_string(),
            "checksum validation failed: checksum mismatch: expected md5:900150983cd24fb0d6963f7d28e17f72, \
             calculated md5:d41d8cd98f00b204e9800998ecf8427e"
        );
    }

    #[test]
    fn unusable_checksums_are_refused_in_cdis_words() {
        assert_eq!(
            refusal("abc"),
            "invalid checksum format: expected 'algorithm:hash', got 'abc'"
        );
        assert_eq!(
            refusal(""),
            "invalid checksum format: expected 'algorithm:hash', got ''"
        );
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
}
