//! The settings of a proxy: those of the pod, or those of the development program.

use std::net::SocketAddr;

use https::tls::{ServerFiles, TlsProfile};
use tokio::sync::watch;

use crate::identity::ProxyIdentity;
use crate::limits::UploadLimits;
use crate::token::TokenVerifier;
use crate::volumes::ClaimDirectory;

/// A whole configuration.
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
    /// The certificate for upload servers, and their authorities.
    pub identity: ProxyIdentity,
    /// Connected to instead of any upload server, for tests.
    pub dial: Option<SocketAddr>,
    /// The limits of uploads.
    pub allowed: UploadLimits,
    /// Addresses for the metrics, of which the first that is free is taken; no metrics if empty.
    pub metrics: Vec<SocketAddr>,
}
