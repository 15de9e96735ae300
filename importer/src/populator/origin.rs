//! The part of a configuration that only one of the populators has.

use sources::{Credentials, Place};

/// Boolean in the secrets of both, which they read in different ways: verify no certificate.
pub(super) const INSECURE: &str = "insecureSkipVerify";

/// The source of a disk.
pub(super) struct Origin {
    pub(super) place: Place,
    pub(super) credentials: Option<Credentials>,
    pub(super) insecure: bool,
}
