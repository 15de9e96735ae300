//! Signature packets (RFC 9580 §5.2).

use stream::digest::DigestAlgorithm;

use super::OpenPgpError;
use super::algorithm::{SignatureNumbers, digest_of, hash_function, read_signature};
use super::key::PgpKey;
use super::packet::{ByteReader, VERSION};
use super::subpackets::SignatureFacts;

/// Types of signatures (RFC 9580 §5.2.1).
pub(super) const BINARY: u8 = 0x00;
pub(super) const TEXT: u8 = 0x01;
pub(super) const CERTIFICATIONS: std::ops::RangeInclusive<u8> = 0x10..=0x13;
pub(super) const SUBKEY_BINDING: u8 = 0x18;
pub(super) const PRIMARY_BINDING: u8 = 0x19;
pub(super) const DIRECT_KEY: u8 = 0x1f;
pub(super) const KEY_REVOCATION: u8 = 0x20;
pub(super) const SUBKEY_REVOCATION: u8 = 0x28;
pub(super) const CERTIFICATION_REVOCATION: u8 = 0x30;

/// A signature of version 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PgpSignature {
    /// The kind of content that is signed (RFC 9580 §5.2.1).
    pub(super) kind: u8,
    /// The number of the hash function, which may be unknown.
    hash: u8,
    pub(super) facts: SignatureFacts,
    /// The signature of a subkey by which it confirms its primary key.
    pub(super) embedded: Option<Box<PgpSignature>>,
    /// The bytes that are hashed after what is signed (RFC 9580 §5.2.4).
    pub(super) trailer: Vec<u8>,
    numbers: SignatureNumbers,
}

impl PgpSignature {
    /// Reads the body of a packet.
    pub(super) fn read(body: &[u8]) -> Result<Self, OpenPgpError> {
        let mut signature = Self::read_alone(body)?;
        // Only one level: an embedded signature does not contain another one.
        let embedded = std::mem::take(&mut signature.facts.embedded);
        let embedded = embedded.iter().find_map(|body| Self::read_alone(body).ok());
        signature.embedded = embedded.map(Box::new);
        Ok(signature)
    }

    /// Reads the body of a packet without the signatures that are embedded in it.
    fn read_alone(body: &[u8]) -> Result<Self, OpenPgpError> {
        let mut reader = ByteReader(body);
        let version = reader.read_byte()?;
        if version != VERSION {
            let what = format!("signatures of version {version} are not supported");
            return Err(OpenPgpError::Unsupported(what));
        }
        let (kind, algorithm) = (reader.read_byte()?, reader.read_byte()?);
        let hash = reader.read_byte()?;
        let length = usize::from(reader.read_u16()?);
        let hashed = reader.read_slice(length)?;
        let signed_length = body.len() - reader.0.len();
        let length = usize::from(reader.read_u16()?);
        let facts = SignatureFacts::read(hashed, reader.read_slice(length)?)?;
        // The first bytes of the digest only help to find damage early.
        reader.read_u16()?;
        let numbers = read_signature(algorithm, &mut reader)?;
        let signed = body.get(..signed_length).unwrap_or_default();
        let count = u32::try_from(signed_length).unwrap_or(u32::MAX).to_be_bytes();
        let trailer = [signed, &[VERSION, 0xff], &count].concat();
        Ok(Self { kind, hash, facts, embedded: None, trailer, numbers })
    }

    /// Returns the hash function; `None` if it is not supported.
    pub(super) fn hash(&self) -> Option<DigestAlgorithm> {
        hash_function(self.hash)
    }

    /// True if `key` made this signature over `parts`, and everything in it is understood.
    pub(super) fn is_by(&self, key: &PgpKey, parts: &[&[u8]]) -> bool {
        let Some(algorithm) = self.hash() else {
            return false;
        };
        let digest = digest_of(algorithm, &[parts, &[&self.trailer]].concat());
        self.has_digest(key, algorithm, &digest)
    }

    /// Like [`PgpSignature::is_by`], with the digest of the parts and the trailer.
    pub(super) fn has_digest(
        &self,
        key: &PgpKey,
        algorithm: DigestAlgorithm,
        digest: &[u8],
    ) -> bool {
        !self.facts.has_unknown_critical
            && self.facts.created.is_some()
            && key.numbers.has_signed(algorithm, digest, &self.numbers)
    }

    /// True unless it names other keys as its issuer.
    pub(super) fn may_be_by(&self, key: &PgpKey) -> bool {
        self.facts.issuers.is_empty() || self.facts.issuers.contains(&key.key_id())
    }

    /// True if nothing in it prevents its verification.
    pub(super) fn is_understood(&self) -> bool {
        self.hash().is_some()
            && !self.facts.has_unknown_critical
            && self.other_algorithm().is_none()
    }

    /// Returns the algorithm's number if it is not supported.
    pub(super) fn other_algorithm(&self) -> Option<u8> {
        match self.numbers {
            SignatureNumbers::Other(algorithm) => Some(algorithm),
            _ => None,
        }
    }

    /// When it was made, in seconds since 1970. Signatures without a time are never valid.
    pub(super) fn created(&self) -> u64 {
        self.facts.created.map_or(u64::MAX, u64::from)
    }

    /// True if it has been made, and has not expired, at the time `now`.
    pub(super) fn is_current(&self, now: u64) -> bool {
        let lifetime = u64::from(self.facts.lifetime);
        let created = self.created();
        created <= now && (lifetime == 0 || now < created.saturating_add(lifetime))
    }
}
