//! The configuration of a TLS server: its certificate, whose certificates clients may show, and what CDI's TLS profile
//! allows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::profile::TlsProfile;
use super::{ALPN_HTTP1, ALPN_HTTP2, TlsError, crypto_provider};

/// The protocols that are spoken above TLS, best first.
const ALPN: [&[u8]; 2] = [ALPN_HTTP2, ALPN_HTTP1];

/// The places of a server's certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// PEM with the server's certificate and those of the authorities between.
    pub certificate: PathBuf,
    /// PEM with the key.
    pub key: PathBuf,
    /// PEM with the authorities whose clients may show a certificate; without, no client is asked for one.
    pub client_ca: Option<PathBuf>,
}

impl ServerFiles {
    /// A server for HTTP/1.1 and HTTP/2. A client may come without a certificate; one that shows a certificate which
    /// none of the authorities has signed fails its handshake.
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
                    .allow_unauthenticated()
                    .build()?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unreadable_error(&self.key, error))?;
        let mut config = builder.with_single_cert(read_certificates(&self.certificate)?, key)?;
        // Clients' libraries seldom know what their machine is good at; most put the slower cipher first.
        config.ignore_client_order = true;
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

impl ServerFiles {
    /// The end of the certificate's time, in seconds since 1970, if the file can be read.
    pub fn expiry_seconds(&self) -> Option<i64> {
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

/// The common name in the subject of a certificate, of whatever length (X.520 allows 64 characters; clones have longer
/// ones). Of several the last counts, as in Go.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = certificate.subject().iter_common_name().last()?;
    name.as_str().ok().map(str::to_owned)
}
