//! The settings of a proxy, for both of its faces.

use std::net::SocketAddr;

use https::tls::{Profile, ServerFiles};
use tokio::sync::watch;

use crate::identity::Identity;
use crate::limits::Allowed;
use crate::token::Verifier;
use crate::volumes::Volumes;

/// A whole configuration.
pub(crate) struct Config {
    /// Empty for all addresses.
    pub(crate) address: String,
    pub(crate) port: u16,
    /// The certificate for clients.
    pub(crate) tls: ServerFiles,
    pub(crate) profile: watch::Receiver<Profile>,
    pub(crate) verifier: Verifier,
    pub(crate) volumes: Volumes,
    /// The certificate for upload servers, and their authorities.
    pub(crate) identity: Identity,
    /// Connected to instead of any upload server, for tests.
    pub(crate) dial: Option<SocketAddr>,
    pub(crate) allowed: Allowed,
    /// Addresses for the metrics, of which the first that is free is taken; no metrics if empty.
    pub(crate) metrics: Vec<SocketAddr>,
}
