//! The right to upload.

use https::listener::Peer;
use https::tls::common_name;

/// The one client that is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientAccess {
    /// The one whose verified certificate has this common name.
    Named(String),
    /// Anybody who can connect.
    Anyone,
}

impl ClientAccess {
    /// True if `peer` may. Only its own certificate counts: what else it sent along is not verified.
    pub(crate) fn allows(&self, peer: &Peer) -> bool {
        match self {
            Self::Anyone => true,
            Self::Named(expected) => {
                let name = peer.certificate.as_ref().and_then(common_name);
                // Without a name to expect, no client is.
                name.is_some_and(|name| name == *expected && !name.is_empty())
            }
        }
    }
}
