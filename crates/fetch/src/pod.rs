//! Network settings from the environment variables of a CDI pod. They are the same for every
//! source and for every program of the pod.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use https::tls::{self, TlsError};
use program::env::{EnvReader, NamedStrings, is_pace_fixed};
use program::paths::PodPaths;
use program::secret::Secret;
use rustls::ClientConfig;
use stream::error::SourceError;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::credentials::BasicCredentials;
use crate::network::Network;
use crate::policy::ImportPolicy;
use crate::proxy::ProxyConfig;
use crate::retry::RetryPolicy;

/// Variables with user and password, or access key and secret key. They are used only if both are
/// set.
const ACCESS_KEY_ID: &str = "IMPORTER_ACCESS_KEY_ID";
const SECRET_KEY: &str = "IMPORTER_SECRET_KEY";
/// Boolean variable; a value that cannot be parsed counts as false.
const INSECURE_TLS: &str = "INSECURE_TLS";
/// Variable with the directory of additional certificates to trust.
pub const CERT_DIR: &str = "IMPORTER_CERT_DIR";
/// Name under which errors of the proxy variables are reported; the error text names the variable.
pub const PROXY: &str = "proxy";

/// Ours, not CDI's: longest time in seconds for which the first contact is retried.
const CONTACT_SECONDS: &str = "CDI_WORKERS_CONTACT_SECONDS";

/// Reads the longest time for which the first contact is retried.
pub fn read_contact_limit(reader: &mut EnvReader<'_>) -> Option<Duration> {
    reader.read_parsed(CONTACT_SECONDS, str::parse).map(Duration::from_secs)
}

/// Network settings as the environment describes them.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    credentials: Option<BasicCredentials>,
    /// Directory with additional certificates to trust.
    pub cert_dir: Option<PathBuf>,
    /// True if certificates are not verified.
    pub insecure: bool,
    proxy: ProxyConfig,
    policy: ImportPolicy,
    connections: Option<NonZeroUsize>,
    retry_policy: RetryPolicy,
}

/// Returns one connection if the pace is fixed, and otherwise lets their number grow.
pub fn fixed_connections(env: &dyn NamedStrings) -> Option<NonZeroUsize> {
    is_pace_fixed(env).then_some(NonZeroUsize::MIN)
}

impl PodNetwork {
    /// Reads the proxies and the policy from `env`. Requests will use `credentials`.
    pub fn new(
        env: &dyn NamedStrings,
        credentials: Option<BasicCredentials>,
        insecure: bool,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            credentials,
            cert_dir: None,
            insecure,
            proxy: ProxyConfig::from_env(|name| env.get(name))?,
            policy: ImportPolicy::for_pod(env, !insecure),
            connections: fixed_connections(env),
            retry_policy: RetryPolicy::default(),
        })
    }

    /// Reads the variables of an importer; returns `None` if one was rejected.
    pub fn from_env(reader: &mut EnvReader<'_>, env: &dyn NamedStrings) -> Option<Self> {
        let user = reader.read_secret(ACCESS_KEY_ID);
        let password = reader.read_secret(SECRET_KEY);
        let [user, password] =
            [&user, &password].map(|part| part.as_ref().map_or("", Secret::expose));
        let insecure = reader.lenient_bool(INSECURE_TLS);
        match Self::new(env, BasicCredentials::new(user, password), insecure) {
            Ok(network) => {
                let cert_dir = reader.read_text(CERT_DIR).map(Into::into);
                let contact_limit = read_contact_limit(reader);
                Some(Self { cert_dir, ..network }.with_contact_limit(contact_limit))
            }
            Err(error) => {
                reader.reject_variable(PROXY, error.to_string());
                None
            }
        }
    }

    /// Sets the longest time for which the first contact is retried, if one is given.
    #[must_use]
    pub fn with_contact_limit(mut self, limit: Option<Duration>) -> Self {
        self.retry_policy.contact_limit = limit.unwrap_or(self.retry_policy.contact_limit);
        self
    }

    /// Loads the certificates and creates the network. Its tasks run on `handle` until `stop` is
    /// cancelled.
    pub fn open_network(
        self,
        paths: &PodPaths,
        handle: Handle,
        stop: CancellationToken,
    ) -> Result<Network, TlsError> {
        let tls = tls::pod_client_config(paths, self.cert_dir.as_deref(), self.insecure)?;
        Ok(self.open_with(tls, handle, stop))
    }

    /// Creates the network with the TLS settings `tls`. Its tasks run on `handle` until `stop` is
    /// cancelled.
    pub fn open_with(self, tls: ClientConfig, handle: Handle, stop: CancellationToken) -> Network {
        Network {
            credentials: self.credentials,
            insecure: self.insecure,
            proxy: self.proxy,
            policy: self.policy,
            connections: self.connections,
            retry_policy: self.retry_policy,
            ..Network::new(handle, stop, Arc::new(tls))
        }
    }
}
