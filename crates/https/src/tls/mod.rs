//! TLS for clients and servers: rustls with the aws-lc-rs provider, version 1.2 or later.
//!
//! Clients trust the same certificates as CDI's Go binaries: the system's roots and the
//! certificates in the directories that the controllers mount. A server certificate in one of
//! these directories is itself trusted, even if it is not a CA certificate.

mod authority;
mod follow;
mod profile;
mod roots;
mod self_signed;
mod server;
mod stream;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use authority::{AuthorityFiles, write_private};
pub use follow::follow_files;
pub use profile::TlsProfile;
pub use roots::{MAX_ROOTS_BYTES, TrustedRoots};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder};
pub use self_signed::SelfSigned;
pub use server::{ServerFiles, common_name};
pub use stream::Stream;
use verify::{KnownCertificates, ServerTrust, ServerVerifier};

use program::crypto::crypto_provider;
use program::paths::PodPaths;

/// ALPN name of HTTP/1.1 (RFC 7301 §6). Our clients offer only this protocol, because HTTP/2 has
/// no advantage for a single long body.
pub(crate) const ALPN_HTTP1: &[u8] = b"http/1.1";

/// ALPN name of HTTP/2 (RFC 9113 §3.2).
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";

/// Reasons why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or directory with certificates or keys cannot be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// The action that failed, such as `cannot write`.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The error from the operating system.
        source: io::Error,
    },
    /// A file with our own certificate or key cannot be used.
    #[error("cannot use the certificate or key in {}: {source}", path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// The error found in the file.
        source: rustls::pki_types::pem::Error,
    },
    /// A client's certificate, or its key, cannot be read.
    #[error("{0} cannot be used: {1}")]
    Identity(&'static str, rustls::pki_types::pem::Error),
    /// rustls rejected the configuration.
    #[error("cannot configure TLS: {}", describe_config_error(.0))]
    Config(#[from] rustls::Error),
    /// The trusted certificates cannot be used.
    #[error("cannot configure TLS verification: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// No certificate could be generated for our own server.
    #[error("cannot create a self-signed certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

/// Describes a configuration error and states what to check.
fn describe_config_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => "the certificate and the key do not match".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the authorities that every pod trusts: the system's roots, and the certificates that CDI
/// mounts for the cluster's proxy and for all imports.
pub fn pod_roots(paths: &PodPaths) -> TrustedRoots {
    let mut roots = TrustedRoots::from_system();
    roots.add_optional_dir(&paths.proxy_certs());
    roots.add_optional_dir(&paths.trusted_certs());
    roots
}

/// The client configuration of a pod. It verifies servers against [`pod_roots`] and `cert_dir`
/// (`IMPORTER_CERT_DIR`). If `insecure` is set (`INSECURE_TLS`), it verifies nothing.
pub fn pod_client_config(
    paths: &PodPaths,
    cert_dir: Option<&Path>,
    insecure: bool,
) -> Result<ClientConfig, TlsError> {
    if insecure {
        return insecure_client_config();
    }
    let mut roots = pod_roots(paths);
    if let Some(cert_dir) = cert_dir {
        roots.add_dir(cert_dir)?;
    }
    client_config(roots)
}

/// Returns a client configuration that trusts `roots`.
pub fn client_config(roots: TrustedRoots) -> Result<ClientConfig, TlsError> {
    anonymous_config(ServerTrust::Known(KnownCertificates::new(roots)?))
}

/// Returns a client configuration that trusts only the certificate for which `is_it` returns no
/// error.
pub fn pinned_client_config(
    is_it: impl Fn(&[u8]) -> Result<(), rustls::Error> + Send + Sync + 'static,
) -> Result<ClientConfig, TlsError> {
    anonymous_config(ServerTrust::Pinned(Box::new(is_it)))
}

/// Returns a client configuration that accepts any certificate of any server. The traffic is
/// encrypted, but the server is not authenticated.
pub fn insecure_client_config() -> Result<ClientConfig, TlsError> {
    anonymous_config(ServerTrust::Everyone)
}

/// Returns a client configuration that trusts `roots` and presents the certificate in
/// `certificate_pem` with the key in `key_pem`.
pub fn mutual_client_config(
    roots: TrustedRoots,
    certificate_pem: &[u8],
    key_pem: &[u8],
) -> Result<ClientConfig, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(certificate_pem)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Identity("the client certificate", error))?;
    let key = PrivateKeyDer::from_pem_slice(key_pem)
        .map_err(|error| TlsError::Identity("the key of the client certificate", error))?;
    let trust = ServerTrust::Known(KnownCertificates::new(roots)?);
    let mut config = verified_builder(trust)?.with_client_auth_cert(certificates, key)?;
    config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
    Ok(config)
}

fn anonymous_config(trust: ServerTrust) -> Result<ClientConfig, TlsError> {
    let mut config = verified_builder(trust)?.with_no_client_auth();
    config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
    Ok(config)
}

fn verified_builder(
    trust: ServerTrust,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let provider = crypto_provider();
    let verifier = Arc::new(ServerVerifier { trust, provider: Arc::clone(&provider) });
    // The safe defaults of rustls are TLS 1.2 and 1.3, the only versions that it supports.
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(builder)
}
