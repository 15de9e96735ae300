//! HTTPS clients and servers: TLS, a client for one server, and a listener that serves requests.
//!
//! ```
//! use https::tls::{SelfSigned, TlsError, TrustedRoots, client_config};
//!
//! let identity = SelfSigned::generate("localhost")?;
//! let mut roots = TrustedRoots::none();
//! roots.add_certificate(identity.certificate().clone());
//! let (server, client) = (identity.server_config()?, client_config(roots)?);
//! assert_eq!(server.alpn_protocols, client.alpn_protocols);
//! # Ok::<(), TlsError>(())
//! ```
//!
//! * [`tls`] configures TLS: the certificates that clients and servers trust, and the encrypted
//!   streams between them.
//! * [`listener`] accepts connections and reads request heads, with limits on their time and
//!   number. [`body`] and [`reply`] help handlers with request bodies and responses.
//! * [`client`] sends requests to one server.
//! * [`metrics`] serves the metrics of a pod.

#![forbid(unsafe_code)]

pub mod body;
pub mod client;
mod delegate;
pub mod listener;
pub mod metrics;
pub mod reply;
pub mod tls;
