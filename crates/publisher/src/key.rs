//! Public keys in PEM files (RFC 7468 §13), as `cosign generate-key-pair` and openssl write them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{SubjectPublicKeyInfoDer, alg_id};

use super::is_good;
use super::signer::{ImageSigner, SignedDocument};

/// Largest PEM file with a key, in bytes. An RSA key of 8,192 bits needs 1,500.
pub(super) const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// DER tags (X.690 §8.9 and §8.6).
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// Bytes of an `RSAPublicKey` with a modulus of 2,048 bits and the exponent 65,537. Smaller keys
/// can be factored with the resources of a state; aws-lc refuses them too, but without a reason.
const MIN_RSA_KEY_BYTES: usize = 270;

/// A public key of a publisher. Which hash function and padding belong to it is fixed, as in
/// cosign: a signature cannot choose a weaker one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherKey {
    algorithm: KeyAlgorithm,
    bits: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAlgorithm {
    EcdsaP256,
    Ed25519,
    Rsa,
}

/// Reasons why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublisherKeyError {
    /// The file does not contain a public key.
    #[error("it has no public key in PEM (BEGIN PUBLIC KEY)")]
    NoKey,
    /// The algorithm, the curve or the size of the key is not supported.
    #[error("{0}; use ECDSA P-256, Ed25519 or RSA of 2048 to 8192 bits")]
    Unsupported(&'static str),
}

impl PublisherKey {
    /// Parses the first public key in the text of a PEM file.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PublisherKeyError> {
        let spki = SubjectPublicKeyInfoDer::from_pem_slice(pem);
        let spki = spki.map_err(|_| PublisherKeyError::NoKey)?;
        let (algorithm, bits) = split_spki(&spki).ok_or(PublisherKeyError::NoKey)?;
        let algorithm = match algorithm {
            known if known == alg_id::ECDSA_P256.as_ref() => KeyAlgorithm::EcdsaP256,
            known if known == alg_id::ED25519.as_ref() => KeyAlgorithm::Ed25519,
            known if known == alg_id::RSA_ENCRYPTION.as_ref() => KeyAlgorithm::Rsa,
            _ => return Err(PublisherKeyError::Unsupported("its algorithm is not supported")),
        };
        if algorithm == KeyAlgorithm::Rsa && bits.len() < MIN_RSA_KEY_BYTES {
            return Err(PublisherKeyError::Unsupported("its RSA modulus is too short"));
        }
        Ok(Self { algorithm, bits: bits.to_vec() })
    }

    /// True if `signature` was made over `message` with the secret key.
    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn VerificationAlgorithm = match self.algorithm {
            KeyAlgorithm::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
            KeyAlgorithm::Ed25519 => &ED25519,
            KeyAlgorithm::Rsa => &RSA_PKCS1_2048_8192_SHA256,
        };
        is_good(UnparsedPublicKey::new(algorithm, &self.bits).verify(message, signature), signature)
    }
}

/// Certificates and entries of transparency logs are not read: the key alone decides, which cosign
/// calls `--insecure-ignore-tlog`.
impl ImageSigner for PublisherKey {
    fn name(&self) -> String {
        "the given key".to_owned()
    }

    fn option(&self) -> &'static str {
        "--verify-key"
    }

    fn advice(&self) -> &'static str {
        "check --verify-key, or ask the publisher for the current key"
    }

    fn verify_signature(&self, document: &SignedDocument<'_>) -> Result<(), String> {
        if self.has_signed(document.signed, document.signature) {
            return Ok(());
        }
        Err("none of its signatures is from this key".to_owned())
    }
}

/// Splits a `SubjectPublicKeyInfo` (RFC 5280 §4.1) into the content of its `AlgorithmIdentifier`
/// and the bits of the key. `None` if it is malformed.
fn split_spki(spki: &[u8]) -> Option<(&[u8], &[u8])> {
    let (info, after) = split_value(spki, SEQUENCE)?;
    let (algorithm, rest) = split_value(info, SEQUENCE)?;
    let (bits, end) = split_value(rest, BIT_STRING)?;
    // The first byte counts the unused bits of the last one.
    let bits = bits.strip_prefix(&[0])?;
    (after.is_empty() && end.is_empty()).then_some((algorithm, bits))
}

/// Splits the content of a DER value with this tag from the bytes after it. Lengths of more than
/// two bytes do not occur in keys.
fn split_value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match bytes.strip_prefix(&[tag])? {
        [length @ ..=0x7f, rest @ ..] => (usize::from(*length), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    /// A PEM file of `spki`.
    fn pem(spki: &[u8]) -> Vec<u8> {
        let text = STANDARD.encode(spki);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        let lines = lines.join("\n");
        format!("-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n").into_bytes()
    }

    fn key_pair() -> (PublisherKey, impl Fn(&[u8]) -> Vec<u8>) {
        let (pem, sign) = testkit::oci::publisher();
        (PublisherKey::from_pem(pem.as_bytes()).unwrap(), sign)
    }

    #[test]
    fn only_the_signed_bytes_and_the_right_key_verify() {
        let (key, sign) = key_pair();
        let signature = sign(b"abc");
        assert!(key.has_signed(b"abc", &signature));
        assert!(!key.has_signed(b"abd", &signature));
        assert!(!key.has_signed(b"abc", &signature[..signature.len() - 1]));
        assert!(!key_pair().0.has_signed(b"abc", &signature));

        let pair = Ed25519KeyPair::generate().unwrap();
        let key = PublisherKey::from_pem(&pem(pair.public_key().as_der().unwrap().as_ref()));
        assert!(key.unwrap().has_signed(b"abc", pair.sign(b"abc").as_ref()));
    }

    #[test]
    fn other_keys_and_other_files_are_refused() {
        let spki = |algorithm: &[u8], bits: usize| {
            let value = |tag, content: &[u8]| {
                let length = u16::try_from(content.len()).unwrap().to_be_bytes();
                [&[tag, 0x82][..], &length, content].concat()
            };
            let bits = value(BIT_STRING, &[&[0][..], &vec![1; bits]].concat());
            value(SEQUENCE, &[value(SEQUENCE, algorithm), bits].concat())
        };
        let rsa = alg_id::RSA_ENCRYPTION.as_ref();
        assert!(PublisherKey::from_pem(&pem(&spki(rsa, MIN_RSA_KEY_BYTES))).is_ok());
        for (algorithm, bits) in
            [(rsa, MIN_RSA_KEY_BYTES - 1), (alg_id::ECDSA_P384.as_ref(), 97), (b"\x06\x01\x2a", 9)]
        {
            let error = PublisherKey::from_pem(&pem(&spki(algorithm, bits))).unwrap_err();
            assert!(matches!(error, PublisherKeyError::Unsupported(_)), "{error}");
        }
        let private = b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        let long = spki(rsa, 300);
        for text in [&b""[..], b"abc", private, &pem(b"abc"), &pem(&long[..long.len() - 1])] {
            assert_eq!(PublisherKey::from_pem(text), Err(PublisherKeyError::NoKey));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_key_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            PublisherKey::from_pem(&pem(&bytes)).ok();
            split_spki(&bytes);
        }
    }
}
