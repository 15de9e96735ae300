//! The part of the configuration that differs between the populators.

use fetch::BasicCredentials;
use sources::SourceLocation;

/// A boolean in the secrets of both populators: true disables the verification of certificates.
/// Each populator parses it in its own way.
pub(super) const INSECURE: &str = "insecureSkipVerify";

/// The source of a disk.
pub(super) struct PopulatorSource {
    pub(super) place: SourceLocation,
    pub(super) credentials: Option<BasicCredentials>,
    pub(super) insecure: bool,
}
