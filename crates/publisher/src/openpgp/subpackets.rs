//! Subpackets of signatures (RFC 9580 §5.2.3.7): times, purposes, who signed.

use super::OpenPgpError;
use super::packet::ByteReader;

/// Types of subpackets (RFC 9580 §5.2.3.7).
const CREATION_TIME: u8 = 2;
const EXPIRATION_TIME: u8 = 3;
const KEY_EXPIRATION_TIME: u8 = 9;
const REVOCATION_KEY: u8 = 12;
const ISSUER_KEY_ID: u8 = 16;
const KEY_FLAGS: u8 = 27;
const REVOCATION_REASON: u8 = 29;
const EMBEDDED_SIGNATURE: u8 = 32;
const ISSUER_FINGERPRINT: u8 = 33;

/// Types that change nothing here, even if they are marked as critical: exportable, trust, regular
/// expression, revocable, preferences, primary user ID, policy, signer's user ID, features. A
/// critical one of any other type makes the signature invalid; so do critical notations.
const HARMLESS: [u8; 14] = [4, 5, 6, 7, 11, 21, 22, 23, 24, 25, 26, 28, 30, 34];

/// Types that a signature has once.
const SINGLE: [u8; 5] =
    [CREATION_TIME, EXPIRATION_TIME, KEY_EXPIRATION_TIME, KEY_FLAGS, REVOCATION_REASON];

/// The key flag of keys that sign (RFC 9580 §5.2.3.29).
pub(super) const SIGN_FLAG: u8 = 2;

/// Reasons of a revocation after which earlier signatures stay valid (RFC 9580 §5.2.3.31): the key
/// was superseded or retired.
const SOFT_REASONS: [u8; 2] = [1, 3];

/// The subpackets that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SignatureFacts {
    /// When the signature was made, in seconds since 1970.
    pub(super) created: Option<u32>,
    /// Seconds after that until it expires; 0 for never.
    pub(super) lifetime: u32,
    /// Seconds after the creation of the key until that expires; 0 for never.
    pub(super) key_lifetime: u32,
    /// The purposes of the key.
    pub(super) key_flags: Option<u8>,
    /// True for a revocation that concerns the future only.
    pub(super) is_soft: bool,
    /// Fingerprints of others who may revoke the key.
    pub(super) revokers: Vec<[u8; 20]>,
    /// The last 8 bytes of the fingerprints of the keys that may have signed.
    pub(super) issuers: Vec<[u8; 8]>,
    /// The packet bodies of embedded signatures.
    pub(super) embedded: Vec<Vec<u8>>,
    /// True if it has a critical subpacket that is not understood.
    pub(super) has_unknown_critical: bool,
}

impl SignatureFacts {
    /// Reads both areas of a signature. Only its issuer and an embedded signature, which prove
    /// themselves, are taken from the area that is not signed.
    pub(super) fn read(hashed: &[u8], unhashed: &[u8]) -> Result<Self, OpenPgpError> {
        let mut facts = Self::default();
        let mut seen = [false; 256];
        for (area, is_signed) in [(hashed, true), (unhashed, false)] {
            let mut reader = ByteReader(area);
            while !reader.0.is_empty() {
                let length = reader.read_length(false)?;
                let mut subpacket = ByteReader(reader.read_slice(length)?);
                let first = subpacket.read_byte()?;
                let (kind, is_critical) = (first & 0x7f, first & 0x80 != 0);
                if is_signed {
                    // Two readers could use two different values.
                    let known = seen.get_mut(usize::from(kind));
                    let was_seen = known.is_some_and(|seen| std::mem::replace(seen, true));
                    if was_seen && SINGLE.contains(&kind) {
                        return Err(OpenPgpError::Malformed("a signature has a subpacket twice"));
                    }
                    facts.read_value(kind, is_critical, &mut subpacket)?;
                } else if [ISSUER_KEY_ID, ISSUER_FINGERPRINT, EMBEDDED_SIGNATURE].contains(&kind) {
                    facts.read_value(kind, false, &mut subpacket)?;
                }
            }
        }
        Ok(facts)
    }

    fn read_value(
        &mut self,
        kind: u8,
        is_critical: bool,
        subpacket: &mut ByteReader<'_>,
    ) -> Result<(), OpenPgpError> {
        match kind {
            CREATION_TIME => self.created = Some(subpacket.read_u32()?),
            EXPIRATION_TIME => self.lifetime = subpacket.read_u32()?,
            KEY_EXPIRATION_TIME => self.key_lifetime = subpacket.read_u32()?,
            KEY_FLAGS => self.key_flags = Some(subpacket.0.first().copied().unwrap_or(0)),
            REVOCATION_REASON => self.is_soft = SOFT_REASONS.contains(&subpacket.read_byte()?),
            REVOCATION_KEY => {
                let fingerprint = subpacket.read_slice(22)?.last_chunk();
                self.revokers.extend(fingerprint.copied());
            }
            ISSUER_KEY_ID => self.issuers.extend(subpacket.0.last_chunk().copied()),
            ISSUER_FINGERPRINT => {
                // Only fingerprints of version 4 end in the key ID.
                if subpacket.read_byte()? == 4 {
                    self.issuers.extend(subpacket.0.last_chunk().copied());
                }
            }
            EMBEDDED_SIGNATURE => self.embedded.push(subpacket.0.to_vec()),
            kind => self.has_unknown_critical |= is_critical && !HARMLESS.contains(&kind),
        }
        Ok(())
    }
}
