//! What every source on a network is told besides where its object is.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use datapath::error::SourceError;
use rustls::ClientConfig;
use url::Url;

use super::http::{Agent, Credentials, HttpConfig};
use super::policy::Policy;
use super::proxy::ProxyConfig;

/// Connections that an object store is read over, unless somebody says otherwise: stores limit each of them, and the network
/// of a cluster carries several.
pub const STORE_CONNECTIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

/// Who is asking, whom to trust, which way to go, how patient to be.
#[derive(Debug, Clone)]
pub struct Access {
    /// User and password, or access key and secret key.
    pub credentials: Option<Credentials>,
    /// Trust anchors and verification.
    pub tls: Arc<ClientConfig>,
    /// True if certificates are not verified; some sources then do without TLS as well.
    pub insecure: bool,
    /// Which requests go through which proxy.
    pub proxy: ProxyConfig,
    /// Connections that a body is read over at once, where that works.
    pub connections: NonZeroUsize,
    /// Longest time without a new byte before the transfer is given up.
    pub no_progress_limit: Duration,
    /// Consecutive failures without a new byte that are allowed; `None` leaves it to the time limit.
    pub retries: Option<u32>,
    /// What may be told to whom.
    pub policy: Policy,
    /// A digest of the whole object was given with the import, and is verified.
    pub is_checked: bool,
}

impl Access {
    /// Asks for documents on behalf of `user_agent`.
    pub fn agent(&self, user_agent: &str) -> Result<Agent, SourceError> {
        Agent::new(&self.tls, &self.proxy, &self.policy, user_agent)
    }

    /// The HTTP settings for `url`: no credentials and no headers, which each source adds in its own way.
    pub fn http(&self, url: Url) -> HttpConfig {
        HttpConfig {
            proxy: self.proxy.clone(),
            policy: self.policy.clone(),
            is_checked: self.is_checked,
            connections: self.connections,
            no_progress_limit: self.no_progress_limit,
            retries: self.retries,
            ..HttpConfig::at(url, Arc::clone(&self.tls))
        }
    }
}
