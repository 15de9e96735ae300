//! Access control: which client may upload.

use https::listener::Peer;
use https::tls::common_name;

/// The clients that may upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientAccess {
    /// Only a client whose verified certificate has this common name.
    Named(String),
    /// Anybody who can connect.
    Anyone,
}

impl ClientAccess {
    /// Returns true if `peer` may upload. Only the leaf certificate is checked: other certificates
    /// that the client sent are not verified.
    pub(crate) fn allows(&self, peer: &Peer) -> bool {
        match self {
            Self::Anyone => true,
            Self::Named(expected) => {
                let name = peer.certificate.as_ref().and_then(common_name);
                // An empty expected name matches no client, not even one whose certificate has an
                // empty name.
                name.is_some_and(|name| name == *expected && !name.is_empty())
            }
        }
    }
}
