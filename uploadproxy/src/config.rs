//! The settings of a proxy. They come from the pod or from the development program.

use std::net::SocketAddr;

use https::tls::{ServerFiles, TlsProfile};
use tokio::sync::watch;

use crate::identity::ProxyIdentity;
use crate::limits::UploadLimits;
use crate::token::TokenVerifier;
use crate::volumes::ClaimDirectory;

/// The complete configuration of a proxy.
pub struct Config {
    /// The address to listen on; empty for all addresses.
    pub address: String,
    /// 0 for any free port.
    pub port: u16,
    /// The certificate for clients.
    pub tls: ServerFiles,
    /// The versions and ciphers of TLS that clients may use.
    pub profile: watch::Receiver<TlsProfile>,
    /// Verifies the tokens of clients.
    pub verifier: TokenVerifier,
    /// Finds the upload server of a PVC.
    pub volumes: ClaimDirectory,
    /// The certificate for connections to upload servers, and the authorities that verify those
    /// servers.
    pub identity: ProxyIdentity,
    /// The address to connect to instead of any upload server, for tests.
    pub dial: Option<SocketAddr>,
    /// The limits of uploads.
    pub allowed: UploadLimits,
    /// Candidate addresses for the metrics endpoint. The first free one is used; an empty list
    /// disables the endpoint.
    pub metrics: Vec<SocketAddr>,
}
