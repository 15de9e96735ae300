//! The settings of a proxy, which are read by the pod or by the development program.

use std::net::SocketAddr;

use https::tls::{ServerFiles, TlsProfile};
use tokio::sync::watch;

use crate::identity::ProxyIdentity;
use crate::limits::UploadLimits;
use crate::token::TokenVerifier;
use crate::volumes::ClaimDirectory;

/// The complete configuration of a proxy.
pub struct Config {
    /// The address to listen on; an empty text means all addresses.
    pub address: String,
    /// The port to listen on; 0 selects any free port.
    pub port: u16,
    /// The certificate that is presented to clients.
    pub tls: ServerFiles,
    /// The TLS versions and cipher suites that clients may use.
    pub profile: watch::Receiver<TlsProfile>,
    /// Verifies the tokens of clients.
    pub verifier: TokenVerifier,
    /// Finds the upload server of a PVC.
    pub volumes: ClaimDirectory,
    /// The certificate for connections to upload servers, and the authorities that have signed the
    /// servers' certificates.
    pub identity: ProxyIdentity,
    /// The address to connect to instead of the upload server's own address, for tests.
    pub dial: Option<SocketAddr>,
    /// Limits for uploads.
    pub allowed: UploadLimits,
    /// Candidate addresses for the metrics endpoint. The first free one is used; an empty list
    /// disables the endpoint.
    pub metrics: Vec<SocketAddr>,
}
