//! TLS for clients and servers: rustls with the aws-lc-rs provider, version 1.2 or later.
//!
//! Clients trust what CDI's Go binaries trust: the system's roots, the folders that the controllers mount, and
//! a certificate that is itself in one of those, even when it is no CA.

mod authority;
mod profile;
mod roots;
mod self_signed;
mod server;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use authority::AuthorityFiles;
pub use profile::Profile;
pub use roots::Roots;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
pub use self_signed::SelfSigned;
pub use server::{ServerFiles, common_name};
use verify::{AnyCertificate, KnownCertificates};

use crate::paths::Paths;

/// The only protocol that is spoken above TLS; HTTP/2 gains nothing for one long body.
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The folder with CA certificates cannot be read.
    #[error("Error listing files in {}: {source}", path.display())]
    ListCerts {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file in the folder with CA certificates cannot be read.
    #[error("cannot read the certificates in {}: {source}", path.display())]
    ReadCert {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file with a certificate or key of our own cannot be used.
    #[error("cannot use the certificate or key in {}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// A certificate or key cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// rustls refused the configuration.
    #[error("cannot configure TLS: {0}")]
    Config(#[from] rustls::Error),
    /// The trusted certificates cannot be used.
    #[error("cannot configure TLS verification: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// No certificate could be made for a server of our own.
    #[error("cannot make a self-signed certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

/// The cryptography of every configuration in this module. Passed explicitly, so that nothing depends on which
/// crate installed a process-wide default.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Makes [`provider`] the default of the process, for libraries that take no configuration. Later calls do nothing.
pub fn install_provider() {
    if aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was already installed");
    }
}

/// The client configuration of a pod: verifies against the system's roots, the proxy's folder in `paths` and
/// `cert_dir` (`IMPORTER_CERT_DIR`), or verifies nothing when `insecure` (`INSECURE_TLS`).
pub fn pod_client_config(
    paths: &Paths,
    cert_dir: Option<&Path>,
    insecure: bool,
) -> Result<ClientConfig, TlsError> {
    if insecure {
        return insecure_client_config();
    }
    let mut roots = Roots::system();
    roots.add_optional_dir(&paths.proxy_certs());
    if let Some(cert_dir) = cert_dir {
        roots.add_dir(cert_dir)?;
    }
    client_config(roots)
}

/// A client configuration that trusts `roots`.
pub fn client_config(roots: Roots) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = KnownCertificates::new(roots, Arc::clone(&provider))?;
    with_verifier(provider, Arc::new(verifier))
}

/// A client configuration that accepts any certificate of any server: the traffic is encrypted, but nobody
/// knows for whom.
pub fn insecure_client_config() -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = AnyCertificate::new(Arc::clone(&provider));
    with_verifier(provider, Arc::new(verifier))
}

fn with_verifier(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, TlsError> {
    // The safe defaults of rustls are TLS 1.2 and 1.3; it knows nothing older.
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
    Ok(config)
}
