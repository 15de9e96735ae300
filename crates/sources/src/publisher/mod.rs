//! Evidence of who published an image: public keys, and lists of checksums.
//!
//! Signatures of container images are found and checked by [`crate::registry`]. The bytes that are
//! parsed here come from servers, so each has a limit before it is read into memory.

mod document;
mod evidence;
mod key;
mod name;
mod openpgp;
mod signed;
mod signer;
mod sums;

pub use self::document::{DocumentReader, is_url, read_file};
pub use self::evidence::{
    ListDemand, TrustedList, read_image_signature, read_key_file, read_keyring_file,
    signature_places,
};
#[cfg(test)]
pub(crate) use self::key::tests::key_pair as test_key_pair;
pub use self::key::{PublisherKey, PublisherKeyError};
pub use self::name::{location_name, require_name};
pub use self::openpgp::{ExpectedSignature, Keyring, OpenPgpError};
pub use self::signed::SignedSource;
pub use self::signer::{ImageSigner, SignatureForm, SignedDocument};
use datapath::error::{SourceError, SourceErrorKind};

/// Reasons why evidence does not show who published an image.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// An option, or a file on this machine that it names, cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The evidence is missing or wrong, or its server cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Creates the error for evidence that is missing or wrong. `message` is the whole sentence.
pub(crate) fn signature_error(message: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Signature, message)
}
