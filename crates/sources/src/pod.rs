//! The network as the variables of a CDI pod describe it: the same for every source, and for whichever program of the pod asks.

use std::path::PathBuf;
use std::sync::Arc;

use datapath::error::SourceError;
use https::tls::{self, TlsError};
use program::env::{EnvReader, NamedStrings};
use program::paths::PodPaths;
use program::secret::Secret;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::credentials::BasicCredentials;
use crate::network::Network;
use crate::policy::ImportPolicy;
use crate::proxy::ProxyConfig;

/// User and password, or access key and secret key: both or none.
const ACCESS_KEY_ID: &str = "IMPORTER_ACCESS_KEY_ID";
const SECRET_KEY: &str = "IMPORTER_SECRET_KEY";
/// Boolean; anything unparsable is false.
const INSECURE_TLS: &str = "INSECURE_TLS";
/// Folder with further certificates to trust.
pub const CERT_DIR: &str = "IMPORTER_CERT_DIR";
/// Name that the errors of the proxy variables are filed under; their text names the variable.
pub const PROXY: &str = "proxy";

/// The network, as the environment describes it.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    credentials: Option<BasicCredentials>,
    /// Folder with further certificates to trust.
    pub cert_dir: Option<PathBuf>,
    /// True if certificates are not verified.
    pub insecure: bool,
    proxy: ProxyConfig,
    policy: ImportPolicy,
}

impl PodNetwork {
    /// The proxy and the policy of `env`, for one who asks with `credentials`.
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
        })
    }

    /// The network of an importer's variables; `None` when one was rejected.
    pub fn from_env(reader: &mut EnvReader<'_>, env: &dyn NamedStrings) -> Option<Self> {
        let user = reader.read_secret(ACCESS_KEY_ID);
        let password = reader.read_secret(SECRET_KEY);
        let [user, password] = [&user, &password].map(|part| part.as_ref().map_or("", Secret::expose));
        let insecure = reader.lenient_bool(INSECURE_TLS);
        match Self::new(env, BasicCredentials::new(user, password), insecure) {
            Ok(network) => Some(Self { cert_dir: reader.read_text(CERT_DIR).map(Into::into), ..network }),
            Err(error) => {
                reader.reject_variable(PROXY, error.to_string());
                None
            }
        }
    }

    /// The network, with the certificates read; its tasks run on `handle`, until `stop`.
    pub fn open_network(
        self,
        paths: &PodPaths,
        handle: Handle,
        stop: CancellationToken,
    ) -> Result<Network, TlsError> {
        let tls = tls::pod_client_config(paths, self.cert_dir.as_deref(), self.insecure)?;
        Ok(self.open_with(tls, handle, stop))
    }

    /// The network with these certificates; its tasks run on `handle`, until `stop`.
    pub fn open_with(self, tls: ClientConfig, handle: Handle, stop: CancellationToken) -> Network {
        Network {
            credentials: self.credentials,
            insecure: self.insecure,
            proxy: self.proxy,
            policy: self.policy,
            ..Network::new(handle, stop, Arc::new(tls))
        }
    }
}
