//! What the proxy shows to upload servers, and what it expects of them: CDI renews both while the proxy runs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::tls::{self, IdentityError, Roots};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// The key with the authorities in the ConfigMap.
const BUNDLE_KEY: &str = "ca-bundle.crt";

/// How long what was read is believed. A change is seen at once all the same when a handshake fails because of it.
const FRESH: Duration = Duration::from_secs(10);

/// How long the authorities are believed when the API server does not answer.
const STALE: Duration = Duration::from_secs(120);

/// How long the API server may take for the ConfigMap.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose certificates upload servers have.
pub(crate) enum Bundle {
    /// A file.
    File(PathBuf),
    /// A ConfigMap of this name.
    ConfigMap(Box<Api<ConfigMap>>, String),
}

/// Why there is no TLS for upload servers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot get the ConfigMap {name}: {reason}")]
    ConfigMap { name: String, reason: String },
    #[error("there is no certificate in {0}")]
    NoAuthority(String),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The proxy as a client.
pub(crate) struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    bundle: Bundle,
    cached: Mutex<Option<Cached>>,
}

struct Cached {
    material: Material,
    config: Arc<ClientConfig>,
    /// When the files were read and the ConfigMap was asked for.
    checked: Instant,
    /// When the ConfigMap was got.
    bundled: Instant,
}

#[derive(PartialEq, Eq, Clone)]
struct Material {
    certificate: Vec<u8>,
    key: Vec<u8>,
    bundle: Vec<u8>,
}

impl Identity {
    pub(crate) fn new(certificate: PathBuf, key: PathBuf, bundle: Bundle) -> Self {
        Self {
            certificate,
            key,
            bundle,
            cached: Mutex::default(),
        }
    }

    /// The configuration for a connection that begins now. The same one is given out as long as nothing has changed.
    pub(crate) async fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        self.config_since(Instant::now().checked_sub(FRESH)).await
    }

    /// Like [`Self::config`], with what is there now. For a connection that has failed.
    pub(crate) async fn config_now(&self) -> Result<Arc<ClientConfig>, Error> {
        self.config_since(Some(Instant::now())).await
    }

    async fn config_since(&self, since: Option<Instant>) -> Result<Arc<ClientConfig>, Error> {
        // Whoever comes meanwhile waits, and then uses what the first has brought.
        let mut cached = self.cached.lock().await;
        if let Some(cached) = &*cached
            && since.is_none_or(|since| cached.checked >= since)
        {
            return Ok(Arc::clone(&cached.config));
        }
        let checked = Instant::now();
        let (bundle, bundled) = match self.read_bundle().await {
            Ok(bundle) => (bundle, checked),
            Err(error) => match &*cached {
                Some(cached) if cached.bundled.elapsed() < STALE => {
                    tracing::warn!("using the authorities of before: {error}");
                    (cached.material.bundle.clone(), cached.bundled)
                }
                _ => return Err(error),
            },
        };
        let material = Material {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            bundle,
        };
        // What cannot be used (half of a renewal, perhaps) does not make what was known before forgotten.
        let config = match &*cached {
            Some(cached) if cached.material == material => Arc::clone(&cached.config),
            _ => Arc::new(self.build(&material)?),
        };
        *cached = Some(Cached {
            material,
            config: Arc::clone(&config),
            checked,
            bundled,
        });
        Ok(config)
    }

    async fn read_bundle(&self) -> Result<Vec<u8>, Error> {
        let (api, name) = match &self.bundle {
            Bundle::File(path) => return read(path),
            Bundle::ConfigMap(api, name) => (api, name),
        };
        let complain = |reason: String| Error::ConfigMap {
            name: name.clone(),
            reason,
        };
        let map = match timeout(PATIENCE, api.get(name)).await {
            Ok(Ok(map)) => map,
            Ok(Err(error)) => return Err(complain(daemon::report::chain(&error))),
            Err(_) => return Err(complain(format!("no answer in {} s", PATIENCE.as_secs()))),
        };
        let bundle = map.data.and_then(|mut data| data.remove(BUNDLE_KEY));
        let bundle = bundle.ok_or_else(|| complain(format!("it has no key {BUNDLE_KEY}")))?;
        Ok(bundle.into_bytes())
    }

    fn build(&self, material: &Material) -> Result<ClientConfig, Error> {
        let roots = Roots::from_pem(&material.bundle).ok_or_else(|| {
            Error::NoAuthority(match &self.bundle {
                Bundle::File(path) => path.display().to_string(),
                Bundle::ConfigMap(_, name) => format!("the ConfigMap {name}"),
            })
        })?;
        Ok(tls::mutual_client_config(
            roots,
            &material.certificate,
            &material.key,
        )?)
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File {
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use daemon::tls::AuthorityFiles;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_not_changed_gives_the_same_configuration_and_what_has_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let files = AuthorityFiles::in_dir(dir.path());
        files.create(&["localhost".to_owned()], "proxy").unwrap();
        let (certificate, key) = files.client.clone();
        let identity = Identity::new(certificate, key, Bundle::File(files.ca.clone()));
        let first = identity.config().await.unwrap();
        tokio::time::advance(FRESH * 2).await;
        assert!(Arc::ptr_eq(&first, &identity.config().await.unwrap()));
        files.create(&["localhost".to_owned()], "proxy").unwrap();
        assert!(
            Arc::ptr_eq(&first, &identity.config().await.unwrap()),
            "believed for a while"
        );
        tokio::time::advance(Duration::from_millis(1)).await;
        let second = identity.config_now().await.unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(&files.ca, "nothing").unwrap();
        tokio::time::advance(FRESH * 2).await;
        assert!(matches!(identity.config().await, Err(Error::NoAuthority(_))));
        let bundle = std::fs::read(&files.server.0).unwrap();
        std::fs::write(&files.ca, bundle).unwrap();
        let third = identity.config().await.unwrap();
        std::fs::remove_file(&files.ca).unwrap();
        tokio::time::advance(FRESH * 2).await;
        let kept = identity.config().await.unwrap();
        assert!(Arc::ptr_eq(&third, &kept), "the authorities of before");
        tokio::time::advance(STALE).await;
        assert!(matches!(identity.config().await, Err(Error::File { .. })));
    }
}
