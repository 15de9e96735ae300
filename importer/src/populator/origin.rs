//! The part of a configuration that only one of the populators has.

use sources::{BasicCredentials, SourceLocation};

/// Boolean in the secrets of both, which they read in different ways: verify no certificate.
pub(super) const INSECURE: &str = "insecureSkipVerify";

/// The source of a disk.
pub(super) struct PopulatorSource {
    pub(super) place: SourceLocation,
    pub(super) credentials: Option<BasicCredentials>,
    pub(super) insecure: bool,
}
