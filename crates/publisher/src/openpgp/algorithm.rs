//! Public keys and their signatures (RFC 9580 §5.2.3, §5.5.5, §9): what aws-lc needs to verify.

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA512_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use stream::digest::{DigestAlgorithm, RunningDigest};

use super::OpenPgpError;
use super::packet::ByteReader;
use crate::is_good;

/// Algorithms of keys (RFC 9580 §9.1).
const RSA: u8 = 1;
const RSA_SIGN_ONLY: u8 = 3;
const ECDSA: u8 = 19;
const EDDSA_LEGACY: u8 = 22;
const ED25519_KEY: u8 = 27;

/// Names of curves (RFC 9580 §9.2).
const CURVE_P256: &[u8] = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
const CURVE_ED25519: &[u8] = b"\x2b\x06\x01\x04\x01\xda\x47\x0f\x01";

/// First byte of a point of Ed25519 in its older form (RFC 9580 §11.2).
const NATIVE_POINT: u8 = 0x40;

/// Tags of DER (X.690 §8.3 and §8.9).
const INTEGER: u8 = 2;
const SEQUENCE: u8 = 0x30;

/// The numbers of a public key, as aws-lc reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyNumbers {
    /// An `RSAPublicKey`, and the length of its modulus in bytes.
    Rsa(Vec<u8>, usize),
    /// A point of P-256.
    P256(Vec<u8>),
    /// A point of Ed25519.
    Ed25519(Vec<u8>),
    /// Another algorithm, by its number. Such keys are kept, so that messages can name them.
    Other(u8),
}

/// The numbers of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SignatureNumbers {
    /// RSA; without leading zeros.
    Rsa(Vec<u8>),
    /// Two numbers, without leading zeros.
    Pair(Vec<u8>, Vec<u8>),
    /// Ed25519 in its newer form: 64 bytes.
    Ed25519(Vec<u8>),
    /// Another algorithm, by its number.
    Other(u8),
}

/// Reads the numbers of a key, which follow its algorithm.
pub(super) fn read_key(
    algorithm: u8,
    reader: &mut ByteReader<'_>,
) -> Result<KeyNumbers, OpenPgpError> {
    Ok(match algorithm {
        RSA | RSA_SIGN_ONLY => {
            let (modulus, exponent) = (reader.read_integer()?, reader.read_integer()?);
            let der = der_value(SEQUENCE, &[der_integer(modulus), der_integer(exponent)].concat());
            KeyNumbers::Rsa(der, modulus.len())
        }
        ECDSA | EDDSA_LEGACY => {
            let length = usize::from(reader.read_byte()?);
            let curve = reader.read_slice(length)?;
            let point = reader.read_integer()?;
            match (algorithm, point.split_first()) {
                (ECDSA, _) if curve == CURVE_P256 => KeyNumbers::P256(point.to_vec()),
                (EDDSA_LEGACY, Some((&NATIVE_POINT, point))) if curve == CURVE_ED25519 => {
                    KeyNumbers::Ed25519(point.to_vec())
                }
                _ => KeyNumbers::Other(algorithm),
            }
        }
        ED25519_KEY => KeyNumbers::Ed25519(reader.read_slice(32)?.to_vec()),
        other => KeyNumbers::Other(other),
    })
}

/// Reads the numbers of a signature, which are at its end.
pub(super) fn read_signature(
    algorithm: u8,
    reader: &mut ByteReader<'_>,
) -> Result<SignatureNumbers, OpenPgpError> {
    let numbers = match algorithm {
        RSA | RSA_SIGN_ONLY => SignatureNumbers::Rsa(reader.read_integer()?.to_vec()),
        ECDSA | EDDSA_LEGACY => {
            SignatureNumbers::Pair(reader.read_integer()?.to_vec(), reader.read_integer()?.to_vec())
        }
        ED25519_KEY => SignatureNumbers::Ed25519(reader.read_slice(64)?.to_vec()),
        other => return Ok(SignatureNumbers::Other(other)),
    };
    match reader.0 {
        [] => Ok(numbers),
        _ => Err(OpenPgpError::Malformed("a signature has bytes after its end")),
    }
}

/// Returns the hash function with this number (RFC 9580 §9.5). SHA-1 is only for signatures of a
/// key on itself: keys of 2009 have no others, and forging one takes a second preimage, because
/// the owner alone chooses what is signed. MD5 is not supported.
pub(super) fn hash_function(number: u8) -> Option<DigestAlgorithm> {
    match number {
        2 => Some(DigestAlgorithm::Sha1),
        8 => Some(DigestAlgorithm::Sha256),
        10 => Some(DigestAlgorithm::Sha512),
        _ => None,
    }
}

/// Computes the digest of `parts`.
pub(super) fn digest_of(algorithm: DigestAlgorithm, parts: &[&[u8]]) -> Vec<u8> {
    let mut running = RunningDigest::new(algorithm);
    parts.iter().for_each(|part| running.update(part));
    digest_bytes(&running.finish_digest())
}

/// Returns the bytes of a digest `algorithm:hex`; none if it is malformed.
pub(super) fn digest_bytes(text: &str) -> Vec<u8> {
    let hex = text.split_once(':').map_or("", |(_, hex)| hex);
    hex::decode(hex).unwrap_or_default()
}

impl KeyNumbers {
    /// True if this key made `signature` over bytes with this digest.
    pub(super) fn has_signed(
        &self,
        algorithm: DigestAlgorithm,
        digest: &[u8],
        signature: &SignatureNumbers,
    ) -> bool {
        match (self, signature) {
            (Self::Rsa(key, length), SignatureNumbers::Rsa(number)) => {
                let parameters: &'static dyn VerificationAlgorithm = match algorithm {
                    DigestAlgorithm::Sha1 => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
                    DigestAlgorithm::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
                    DigestAlgorithm::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
                    _ => return false,
                };
                let padded = pad_to(*length, number);
                padded.is_some_and(|padded| verify(parameters, key, algorithm, digest, &padded))
            }
            (Self::P256(key), SignatureNumbers::Pair(r, s)) => {
                let parameters: &'static dyn VerificationAlgorithm = match algorithm {
                    DigestAlgorithm::Sha256 => &ECDSA_P256_SHA256_ASN1,
                    DigestAlgorithm::Sha512 => &ECDSA_P256_SHA512_ASN1,
                    _ => return false,
                };
                let der = der_value(SEQUENCE, &[der_integer(r), der_integer(s)].concat());
                verify(parameters, key, algorithm, digest, &der)
            }
            (Self::Ed25519(key), SignatureNumbers::Pair(r, s)) => {
                let parts = [pad_to(32, r), pad_to(32, s)];
                parts.iter().all(Option::is_some)
                    && verify_ed25519(key, digest, &parts.map(Option::unwrap_or_default).concat())
            }
            (Self::Ed25519(key), SignatureNumbers::Ed25519(bytes)) => {
                verify_ed25519(key, digest, bytes)
            }
            _ => false,
        }
    }
}

fn verify(
    parameters: &'static dyn VerificationAlgorithm,
    key: &[u8],
    algorithm: DigestAlgorithm,
    digest: &[u8],
    signature: &[u8],
) -> bool {
    let kind = match algorithm {
        DigestAlgorithm::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        DigestAlgorithm::Sha256 => &digest::SHA256,
        DigestAlgorithm::Sha512 => &digest::SHA512,
        _ => return false,
    };
    let key = UnparsedPublicKey::new(parameters, key);
    Digest::import_less_safe(digest, kind)
        .is_ok_and(|digest| is_good(key.verify_digest(&digest, signature), signature))
}

/// Verifies a signature with Ed25519 over a digest: to the algorithm, the digest is the message
/// (RFC 9580 §5.2.4).
fn verify_ed25519(key: &[u8], digest: &[u8], signature: &[u8]) -> bool {
    // An empty digest stands for a failed hash.
    let key = UnparsedPublicKey::new(&ED25519, key);
    !digest.is_empty() && is_good(key.verify(digest, signature), signature)
}

/// Returns `number` with leading zeros up to `length` bytes; `None` if it has more.
fn pad_to(length: usize, number: &[u8]) -> Option<Vec<u8>> {
    let zeros = length.checked_sub(number.len())?;
    Some([&vec![0; zeros][..], number].concat())
}

fn der_integer(number: &[u8]) -> Vec<u8> {
    // A first bit that is set would make it negative; an empty one is zero.
    let is_padded = number.first().is_none_or(|first| first & 0x80 != 0);
    let zero: &[u8] = if is_padded { &[0] } else { &[] };
    der_value(INTEGER, &[zero, number].concat())
}

/// Returns a DER value. Keys and signatures are shorter than 64 KiB: their numbers have a length
/// of 16 bits.
fn der_value(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let length: &[u8] = match (high, low) {
        (0, ..=0x7f) => &[low],
        (0, _) => &[0x81, low],
        _ => &[0x82, high, low],
    };
    [&[tag], length, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_has_the_shortest_lengths() {
        assert_eq!(der_integer(&[]), [2, 1, 0]);
        assert_eq!(der_integer(&[0x7f]), [2, 1, 0x7f]);
        assert_eq!(der_integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(der_value(SEQUENCE, &[])[..], [0x30, 0]);
        assert_eq!(der_value(SEQUENCE, &[0; 0x7f])[..3], [0x30, 0x7f, 0]);
        assert_eq!(der_value(SEQUENCE, &[0; 0x80])[..3], [0x30, 0x81, 0x80]);
        assert_eq!(der_value(SEQUENCE, &[0; 0x1234])[..4], [0x30, 0x82, 0x12, 0x34]);
    }

    #[test]
    fn numbers_are_padded_and_never_cut() {
        assert_eq!(pad_to(3, &[1]), Some(vec![0, 0, 1]));
        assert_eq!(pad_to(1, &[1]), Some(vec![1]));
        assert_eq!(pad_to(1, &[1, 2]), None);
    }
}
