//! Public keys (RFC 9580 §5.5.2).

use stream::digest::DigestAlgorithm;

use super::OpenPgpError;
use super::algorithm::{KeyNumbers, digest_of, read_key};
use super::packet::{ByteReader, VERSION};

/// A public key of version 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PgpKey {
    /// When it was made, in seconds since 1970.
    pub(super) created: u64,
    pub(super) fingerprint: Vec<u8>,
    /// The bytes that are hashed for signatures about the key.
    pub(super) hashed: Vec<u8>,
    pub(super) numbers: KeyNumbers,
}

impl PgpKey {
    /// Reads the body of a packet; `None` for a key of another version.
    pub(super) fn read(body: &[u8]) -> Result<Option<Self>, OpenPgpError> {
        let mut reader = ByteReader(body);
        if reader.read_byte()? != VERSION {
            return Ok(None);
        }
        let created = u64::from(reader.read_u32()?);
        let algorithm = reader.read_byte()?;
        let numbers = read_key(algorithm, &mut reader)?;
        let Ok(length) = u16::try_from(body.len()) else {
            return Err(OpenPgpError::Malformed("it has a key of more than 64 KiB"));
        };
        let hashed = [&[0x99], &length.to_be_bytes()[..], body].concat();
        let fingerprint = digest_of(DigestAlgorithm::Sha1, &[&hashed]);
        Ok(Some(Self { created, fingerprint, hashed, numbers }))
    }

    /// Returns the last 8 bytes of the fingerprint.
    pub(super) fn key_id(&self) -> [u8; 8] {
        self.fingerprint.last_chunk().copied().unwrap_or_default()
    }
}
