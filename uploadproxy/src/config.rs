//! What a proxy needs to know, whoever started it.

use std::net::SocketAddr;

use daemon::tls::{Profile, ServerFiles};
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
    /// What clients see.
    pub(crate) tls: ServerFiles,
    pub(crate) profile: watch::Receiver<Profile>,
    pub(crate) verifier: Verifier,
    pub(crate) volumes: Volumes,
    /// What upload servers see.
    pub(crate) identity: Identity,
    /// Connected to instead of any upload server, for tests.
    pub(crate) dial: Option<SocketAddr>,
    pub(crate) allowed: Allowed,
    /// Where metrics are served, the first that can be had; none if empty.
    pub(crate) metrics: Vec<SocketAddr>,
}
