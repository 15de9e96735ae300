//! Access control: decides which clients may upload.

use https::listener::Peer;
use https::tls::common_name;

/// The clients that may upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientAccess {
    /// Only clients whose verified certificate contains this common name.
    Named(String),
    /// Any client that can connect.
    Anyone,
}

impl ClientAccess {
    /// Returns true if `peer` may upload. Only the leaf certificate is checked, because the other
    /// certificates that the client sent are not verified.
    pub(crate) fn allows(&self, peer: &Peer) -> bool {
        match self {
            Self::Anyone => true,
            Self::Named(expected) => {
                let name = peer.certificate.as_ref().and_then(common_name);
                // An empty expected name matches no client, not even one with an empty name in its
                // certificate.
                name.is_some_and(|name| name == *expected && !name.is_empty())
            }
        }
    }
}
