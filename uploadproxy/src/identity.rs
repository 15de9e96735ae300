//! The proxy's certificate for connections to upload servers, and the authorities that sign the
//! servers' certificates. CDI renews both while the proxy runs.
//!
//! As long as nothing has changed, the same configuration object is returned. The connection pool
//! compares it to decide whether its connections may still be used. Only one request at a time
//! reads the files and the ConfigMap. Other requests use the previous configuration, or share the
//! failure of that read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use https::tls::{self, TrustedRoots};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

/// The key in the ConfigMap under which the authorities' certificates are stored.
const BUNDLE_KEY: &str = "ca-bundle.crt";

/// Time for which certificates are used before they are read again. After a failed handshake they
/// are read again at once.
const FRESH: Duration = Duration::from_secs(10);

/// Time for which certificates remain in use while attempts to read them again fail.
const STALE: Duration = Duration::from_secs(120);

/// Time limit for getting the ConfigMap.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Time limit for getting the ConfigMap while an earlier configuration can still be used.
const SHORT_ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Maximum age of certificates that [`ProxyIdentity::config_now`] accepts as current.
const MOMENT: Duration = Duration::from_secs(1);

/// The location of the certificates of upload servers' authorities.
pub enum AuthorityBundle {
    /// A file with this path.
    File(PathBuf),
    /// A ConfigMap with this name.
    ConfigMap(Box<Api<ConfigMap>>, String),
}

/// The reason why there is no TLS configuration for upload servers. Requests that share a failed
/// read share its message.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoIdentityError(String);

/// The proxy's identity as a client of the upload servers.
pub struct ProxyIdentity {
    certificate: PathBuf,
    key: PathBuf,
    bundle: AuthorityBundle,
    /// Locked by the request that reads the certificates. Contains the last failure.
    reading: AsyncMutex<Option<FailedRead>>,
    cached: Mutex<Option<CachedIdentity>>,
}

/// A failed read and its time. Requests that waited for this read use its error instead of trying
/// again.
struct FailedRead {
    when: Instant,
    error: NoIdentityError,
}

#[derive(Clone)]
struct CachedIdentity {
    material: IdentityMaterial,
    config: Arc<ClientConfig>,
    /// Time of the latest attempt to read the files and the ConfigMap.
    checked: Instant,
    /// Time of the latest successful read of the files and the ConfigMap.
    good: Instant,
}

#[derive(PartialEq, Eq, Clone)]
struct IdentityMaterial {
    certificate: Vec<u8>,
    key: Vec<u8>,
    bundle: Vec<u8>,
}

impl ProxyIdentity {
    /// Creates an identity from the files with a certificate and its key. `bundle` contains the
    /// authorities of upload servers.
    pub fn new(certificate: PathBuf, key: PathBuf, bundle: AuthorityBundle) -> Self {
        Self { certificate, key, bundle, reading: AsyncMutex::default(), cached: Mutex::default() }
    }

    /// Returns the configuration for a new connection. The same object is returned as long as
    /// nothing has changed.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>, NoIdentityError> {
        let arrived = Instant::now();
        let cached = self.cached_identity();
        if let Some(cached) = &cached {
            if cached.checked.elapsed() <= FRESH {
                return Ok(Arc::clone(&cached.config));
            }
            // While another request reads the certificates, the previous configuration can be
            // used.
            if cached.good.elapsed() < STALE && self.reading.try_lock().is_err() {
                return Ok(Arc::clone(&cached.config));
            }
        }
        let time_limit = if cached.is_some() { SHORT_ANSWER_LIMIT } else { ANSWER_LIMIT };
        self.read_since(arrived.checked_sub(FRESH), arrived, time_limit).await
    }

    /// Returns an up-to-date configuration, for use after a connection has failed. Certificates
    /// read up to [`MOMENT`] ago count as current. Otherwise an upload server for which every
    /// connection fails would cause one read for each of its clients.
    pub(crate) async fn config_now(&self) -> Result<Arc<ClientConfig>, NoIdentityError> {
        let arrived = Instant::now();
        self.read_since(arrived.checked_sub(MOMENT), arrived, ANSWER_LIMIT).await
    }

    fn cached_identity(&self) -> Option<CachedIdentity> {
        self.cached.lock().clone()
    }

    /// Returns a configuration that was read after `since` by this or another request. A read that
    /// failed after `arrived` is not repeated.
    async fn read_since(
        &self,
        since: Option<Instant>,
        arrived: Instant,
        time_limit: Duration,
    ) -> Result<Arc<ClientConfig>, NoIdentityError> {
        // Requests that arrive during a read wait here, and then use its result.
        let mut failed = self.reading.lock().await;
        let cached = self.cached_identity();
        if let Some(cached) = &cached
            && since.is_none_or(|since| cached.checked >= since)
        {
            return Ok(Arc::clone(&cached.config));
        }
        if let Some(FailedRead { when, error }) = &*failed
            && *when > arrived
        {
            return Err(error.clone());
        }
        let read = self.read_identity(cached, time_limit).await;
        read.inspect_err(|error| {
            *failed = Some(FailedRead { when: Instant::now(), error: error.clone() });
        })
    }

    async fn read_identity(
        &self,
        cached: Option<CachedIdentity>,
        time_limit: Duration,
    ) -> Result<Arc<ClientConfig>, NoIdentityError> {
        let checked = Instant::now();
        let read = match self.read_anew(cached.as_ref(), time_limit).await {
            Ok((material, config)) => CachedIdentity { material, config, checked, good: checked },
            // A renewal may have been half complete during the read, or the API server may be
            // unreachable. The previous certificates stay in use for a while.
            Err(error) => match cached.filter(|cached| cached.good.elapsed() < STALE) {
                Some(cached) => {
                    tracing::warn!("using the previous certificates: {error}");
                    CachedIdentity { checked, ..cached }
                }
                None => return Err(error),
            },
        };
        let config = Arc::clone(&read.config);
        *self.cached.lock() = Some(read);
        Ok(config)
    }

    async fn read_anew(
        &self,
        cached: Option<&CachedIdentity>,
        time_limit: Duration,
    ) -> Result<(IdentityMaterial, Arc<ClientConfig>), NoIdentityError> {
        let material = IdentityMaterial {
            bundle: self.read_bundle(time_limit).await?,
            certificate: read_file(&self.certificate)?,
            key: read_file(&self.key)?,
        };
        let config = match cached {
            Some(cached) if cached.material == material => Arc::clone(&cached.config),
            _ => Arc::new(self.build_config(&material)?),
        };
        Ok((material, config))
    }

    async fn read_bundle(&self, time_limit: Duration) -> Result<Vec<u8>, NoIdentityError> {
        let (api, name) = match &self.bundle {
            AuthorityBundle::File(path) => return read_file(path),
            AuthorityBundle::ConfigMap(api, name) => (api, name),
        };
        let complain =
            |reason: String| NoIdentityError(format!("cannot get the ConfigMap {name}: {reason}"));
        let map = match timeout(time_limit, api.get(name)).await {
            Ok(Ok(map)) => map,
            Ok(Err(error)) => return Err(complain(program::report::error_chain(&error))),
            Err(_) => return Err(complain(format!("no answer in {} s", time_limit.as_secs()))),
        };
        let bundle = map.data.and_then(|mut data| data.remove(BUNDLE_KEY));
        let bundle = bundle.ok_or_else(|| complain(format!("it has no key {BUNDLE_KEY}")))?;
        Ok(bundle.into_bytes())
    }

    fn build_config(&self, material: &IdentityMaterial) -> Result<ClientConfig, NoIdentityError> {
        let roots = TrustedRoots::from_pem(&material.bundle).ok_or_else(|| {
            NoIdentityError(match &self.bundle {
                AuthorityBundle::File(path) => {
                    format!("no certificate found in {}", path.display())
                }
                AuthorityBundle::ConfigMap(_, name) => {
                    format!("no certificate found in the ConfigMap {name}")
                }
            })
        })?;
        tls::mutual_client_config(roots, &material.certificate, &material.key)
            .map_err(|error| NoIdentityError(error.to_string()))
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, NoIdentityError> {
    std::fs::read(path)
        .map_err(|error| NoIdentityError(format!("cannot read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use https::tls::AuthorityFiles;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unchanged_identity_keeps_its_configuration_and_a_new_one_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = AuthorityFiles::in_dir(dir.path());
        files.create_files(&["localhost".to_owned()], "proxy").unwrap();
        let (certificate, key) = files.client.clone();
        let identity =
            ProxyIdentity::new(certificate, key, AuthorityBundle::File(files.ca.clone()));
        let first = identity.client_config().await.unwrap();
        tokio::time::advance(FRESH * 2).await;
        assert!(Arc::ptr_eq(&first, &identity.client_config().await.unwrap()));
        files.create_files(&["localhost".to_owned()], "proxy").unwrap();
        assert!(
            Arc::ptr_eq(&first, &identity.client_config().await.unwrap()),
            "not read again at once"
        );
        tokio::time::advance(MOMENT + Duration::from_millis(1)).await;
        let second = identity.config_now().await.unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        // Half of a renewal, an invalid authority, and missing files.
        let bundle = std::fs::read(&files.ca).unwrap();
        let key = std::fs::read(&identity.key).unwrap();
        let other = AuthorityFiles::in_dir(&dir.path().join("other"));
        std::fs::create_dir(dir.path().join("other")).unwrap();
        other.create_files(&["localhost".to_owned()], "proxy").unwrap();
        std::fs::copy(&other.client.1, &identity.key).unwrap();
        tokio::time::advance(FRESH * 2).await;
        let kept = identity.client_config().await.unwrap();
        assert!(Arc::ptr_eq(&second, &kept), "a key of another certificate");
        std::fs::write(&identity.key, key).unwrap();
        std::fs::write(&files.ca, "nothing").unwrap();
        tokio::time::advance(FRESH * 2).await;
        assert!(Arc::ptr_eq(&second, &identity.client_config().await.unwrap()), "no authority");
        tokio::time::advance(STALE).await;
        let refused = identity.client_config().await.unwrap_err();
        assert!(refused.to_string().starts_with("no certificate found in "), "{refused}");
        std::fs::write(&files.ca, bundle).unwrap();
        identity.client_config().await.unwrap();
        std::fs::remove_file(&files.ca).unwrap();
        tokio::time::advance(STALE * 2).await;
        let refused = identity.client_config().await.unwrap_err();
        assert!(refused.to_string().starts_with("cannot read "), "{refused}");
    }
}
