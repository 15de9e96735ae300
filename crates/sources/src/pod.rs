//! The network as the variables of a CDI pod describe it: the same for every source, and for whichever program of the pod asks.

use std::path::PathBuf;
use std::sync::Arc;

use https::tls::{self, TlsError};
use program::env::{EnvReader, Strings};
use program::paths::Paths;
use program::secret::Secret;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::credentials::Credentials;
use crate::network::Network;
use crate::policy::Policy;
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
    user: Option<Secret>,
    password: Option<Secret>,
    /// Folder with further certificates to trust.
    pub cert_dir: Option<PathBuf>,
    /// True if certificates are not verified.
    pub insecure: bool,
    proxy: ProxyConfig,
    policy: Policy,
}

impl PodNetwork {
    /// `None` when a variable was rejected.
    pub fn read(reader: &mut EnvReader<'_>, env: &dyn Strings) -> Option<Self> {
        let proxy = ProxyConfig::from_env(|name| env.get(name));
        if let Err(error) = &proxy {
            reader.reject(PROXY, error.to_string());
        }
        let insecure = reader.lenient_bool(INSECURE_TLS);
        Some(Self {
            user: reader.secret(ACCESS_KEY_ID),
            password: reader.secret(SECRET_KEY),
            cert_dir: reader.text(CERT_DIR).map(Into::into),
            insecure,
            proxy: proxy.ok()?,
            policy: Policy::pod(env, !insecure),
        })
    }

    /// The network, with the certificates read; its tasks run on `handle`, until `stop`.
    pub fn open(&self, paths: &Paths, handle: Handle, stop: CancellationToken) -> Result<Network, TlsError> {
        let tls = tls::pod_client_config(paths, self.cert_dir.as_deref(), self.insecure)?;
        let user = self.user.as_ref().map_or("", Secret::expose);
        let password = self.password.as_ref().map_or("", Secret::expose);
        Ok(Network {
            credentials: Credentials::new(user, password),
            insecure: self.insecure,
            proxy: self.proxy.clone(),
            policy: self.policy.clone(),
            ..Network::new(handle, stop, Arc::new(tls))
        })
    }
}
