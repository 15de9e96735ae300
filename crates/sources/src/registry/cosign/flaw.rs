//! Reasons to refuse a signature.

/// Why a signature does not count, the least informative first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SignatureFlaw {
    /// The key did not make it.
    WrongKey,
    /// The signature cannot be read.
    Malformed(String),
    /// The key made it for something that is not this image.
    OtherImage(String),
}
