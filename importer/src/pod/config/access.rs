//! Identity, trust and proxies: the same variables for every source on a network.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use daemon::env::{EnvReader, Strings};
use daemon::paths::Paths;
use daemon::secret::Secret;
use daemon::tls::{self, TlsError};

use sources::NO_PROGRESS_LIMIT;
use sources::access::Access;
use sources::http::Credentials;
use sources::policy::Policy;
use sources::proxy::ProxyConfig;

/// User and password, or access key and secret key: both or none.
const ACCESS_KEY_ID: &str = "IMPORTER_ACCESS_KEY_ID";
const SECRET_KEY: &str = "IMPORTER_SECRET_KEY";
/// Boolean; anything unparsable is false.
const INSECURE_TLS: &str = "INSECURE_TLS";
/// Folder with further certificates to trust.
const CERT_DIR: &str = "IMPORTER_CERT_DIR";
/// The key for errors of the proxy variables; their text names the variable.
pub(super) const PROXY: &str = "proxy";

/// The environment's variables about access.
#[derive(Debug, Clone)]
pub struct AccessConfig {
    user: Option<Secret>,
    password: Option<Secret>,
    /// Folder with further certificates to trust.
    pub cert_dir: Option<PathBuf>,
    /// True if certificates are not verified.
    pub(crate) insecure: bool,
    proxy: ProxyConfig,
    policy: Policy,
}

impl AccessConfig {
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

    /// The same with the certificates read.
    pub fn open(&self, paths: &Paths) -> Result<Access, TlsError> {
        let tls = tls::pod_client_config(paths, self.cert_dir.as_deref(), self.insecure)?;
        let text = |secret: &Option<Secret>| {
            secret
                .as_ref()
                .map(|secret| secret.expose().to_owned())
                .unwrap_or_default()
        };
        Ok(Access {
            credentials: Credentials::new(&text(&self.user), &text(&self.password)),
            tls: Arc::new(tls),
            insecure: self.insecure,
            proxy: self.proxy.clone(),
            connections: NonZeroUsize::MIN,
            no_progress_limit: NO_PROGRESS_LIMIT,
            retries: None,
            is_checked: false,
            policy: self.policy.clone(),
        })
    }
}
