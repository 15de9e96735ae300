//! OpenPGP signatures of publishers (RFC 9580): detached ones, and clear-signed lists.
//!
//! ```text
//!  armor ─► packet ─┬─► signature ──┐
//!                   └─► certificate ┴─► verify: who signed, and may that key sign?
//! ```
//!
//! Supported are version 4 keys and signatures with RSA, ECDSA P-256 and Ed25519 over SHA-256 and
//! SHA-512, which covers every publisher that we know. Everything else is refused by name.
//!
//! No library is used. `sequoia-openpgp` is LGPL. `pgp` (rPGP) adds 91 crates, eight of them in a
//! second version, and leaves to its caller what decides here: which subkeys are bound, what may
//! sign, and what is expired or revoked. All arithmetic is done by aws-lc.

mod algorithm;
mod armor;
mod certificate;
mod cleartext;
mod key;
mod packet;
mod signature;
mod subpackets;
#[cfg(test)]
mod tests;
mod verify;

use std::time::{SystemTime, UNIX_EPOCH};

pub use self::certificate::Keyring;
pub use self::cleartext::{ClearSigned, is_clear_signed};
pub use self::verify::DetachedSignature;
pub use self::verify::ExpectedSignature;

/// Largest keyring, in bytes. One with the keys of all distributions has some hundred KiB.
pub(super) const MAX_KEYRING_BYTES: u64 = 4 << 20;

/// Largest file with signatures, in bytes.
pub(super) const MAX_SIGNATURE_FILE_BYTES: u64 = 64 << 10;

/// Reasons why a signature does not prove who published something, the least informative first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum OpenPgpError {
    /// The file does not contain what it should.
    #[error("{0}")]
    Malformed(&'static str),
    /// The keyring lacks the key.
    #[error("it was made with the key {0}, which is not in the keyring")]
    UnknownKey(String),
    /// The signature or the key uses something that is not supported, or not safe.
    #[error("{0}")]
    Unsupported(String),
    /// The signed bytes are others.
    #[error("it does not match: what it signs has been changed")]
    Mismatch,
    /// The key may not sign.
    #[error("its key {0} {1}")]
    Key(String, KeyFlaw),
    /// The signature itself is not valid at this time.
    #[error("{0}")]
    Time(&'static str),
}

/// Reasons why a key of the keyring may not sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum KeyFlaw {
    /// No valid signature of the key on itself states its purpose.
    #[error("has no valid signature of its owner")]
    Unowned,
    /// The key is a subkey, and the primary key or the subkey does not confirm this.
    #[error("is not bound to its primary key")]
    Unbound,
    /// The key has another purpose.
    #[error("is not meant for signatures")]
    Purpose,
    /// The signature is older than the key.
    #[error("did not exist when the signature was made")]
    Younger,
    /// The key had expired.
    #[error("had expired when the signature was made")]
    Expired,
    /// The owner has revoked the key.
    #[error("is revoked")]
    Revoked,
}

/// Returns the current time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
