//! Reasons to refuse a signature.

/// Why a signature does not count, the least informative first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureFlaw {
    /// The signer did not make it, for this reason.
    OtherSigner(String),
    /// The signature cannot be read.
    Malformed(String),
    /// The signer made it for something that is not this image.
    OtherImage(String),
}
