//! Whom to trust: public keys, OpenPGP keyrings, and lists of checksums that they have signed.
//!
//! The crate `oci` finds the signatures of container images, and asks a key of this crate about
//! each.
//!
//! # Threats
//!
//! * The server of the image, of the list and of the signature may be the attacker. Everything
//!   that is parsed comes from it, and has a limit before it is read into memory.
//! * The user's key or keyring is trusted, but may have expired, have been revoked, or contain
//!   parts that its owner did not sign: each signature states what it is for, and counts only if
//!   the owner's own signatures allow that at this time.
//! * A signature does not choose its algorithm: the key does. A part that is marked as critical and
//!   not known here is refused.
//! * An attacker may serve an old list with a valid signature. Nothing here prevents that; lists
//!   of distributions contain no dates. Users who need freshness name a digest.
//! * A disk is written before its last byte is verified, but a disk whose checksum or signature is
//!   wrong is removed or stays without its first MiB (`datapath::disk`).

#![forbid(unsafe_code)]

mod document;
mod evidence;
mod key;
mod name;
#[doc(hidden)] // for the fuzz targets
pub mod openpgp;
mod signed;
mod signer;
#[doc(hidden)] // for the fuzz targets
pub mod sums;

use aws_lc_rs::error::Unspecified;
use stream::error::{SourceError, SourceErrorKind};

pub use self::document::{DocumentReader, is_url, read_file};
pub use self::evidence::{
    ListDemand, TrustedList, read_image_signature, read_key_file, read_keyring_file,
    signature_places,
};
pub use self::key::{PublisherKey, PublisherKeyError};
pub use self::name::{location_name, require_name};
pub use self::openpgp::{ExpectedSignature, Keyring, OpenPgpError};
pub use self::signed::demand_signature;
pub use self::signer::{ImageSigner, SignatureForm, SignedDocument};

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
pub fn signature_error(message: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Signature, message)
}

/// Returns whether aws-lc has found `signature` to be good. The fuzzer cannot sign, but reaches the
/// code behind a signature: under `cargo fuzz`, one is also good if its last byte is not 0.
fn is_good(verified: Result<(), Unspecified>, signature: &[u8]) -> bool {
    verified.is_ok() || cfg!(fuzzing) && signature.last().is_some_and(|last| *last != 0)
}
