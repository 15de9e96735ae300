//! Builds the configuration of a TLS server: its certificate, the trusted issuers of client
//! certificates, and the limits of CDI's TLS profile.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::profile::TlsProfile;
use super::{ALPN_HTTP1, ALPN_HTTP2, TlsError, crypto_provider};

/// The ALPN protocols in order of preference.
const ALPN: [&[u8]; 2] = [ALPN_HTTP2, ALPN_HTTP1];

/// Paths of a server's certificates and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// PEM file that contains the server's certificate and the intermediate certificates.
    pub certificate: PathBuf,
    /// PEM file that contains the server's key.
    pub key: PathBuf,
    /// PEM file that contains the trusted issuers of client certificates. Without it, clients are
    /// not asked for a certificate.
    pub client_ca: Option<PathBuf>,
}

impl ServerFiles {
    /// Builds the configuration of a server for HTTP/1.1 and HTTP/2. Clients may connect without a
    /// certificate. The handshake fails if a client presents a certificate that no trusted
    /// authority has signed.
    pub fn server_config(&self, profile: &TlsProfile) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(profile.restrict_suites(crypto_provider()));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(profile.protocol_versions())?;
        let builder = match &self.client_ca {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    roots.add(certificate)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    // The kubelet's probes present no certificate. Requests that need one are
                    // refused by the handler, which can answer 401; at this point only the whole
                    // handshake could fail.
                    .allow_unauthenticated()
                    .build()?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unreadable_error(&self.key, error))?;
        let mut config = builder.with_single_cert(read_certificates(&self.certificate)?, key)?;
        // The server chooses the cipher. Client libraries rarely know which one is fast on their
        // machine, and most of them prefer the slower one.
        config.ignore_client_order = true;
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

impl ServerFiles {
    /// Returns the end of the certificate's validity in seconds since 1970, or `None` if the file
    /// cannot be read.
    pub(super) fn expiry_seconds(&self) -> Option<i64> {
        let certificates = read_certificates(&self.certificate).ok()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(certificates.first()?).ok()?;
        Some(certificate.validity().not_after.timestamp())
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable_error(path, error))?;
    if certificates.is_empty() {
        return Err(unreadable_error(path, pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

fn unreadable_error(path: &Path, error: pem::Error) -> TlsError {
    TlsError::Pem { path: path.to_owned(), source: error }
}

/// Returns the common name in a certificate's subject, of any length. X.520 allows 64 characters,
/// but the names for clones are longer. If there are several, the last one counts, as in Go.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = certificate.subject().iter_common_name().last()?;
    name.as_str().ok().map(str::to_owned)
}
