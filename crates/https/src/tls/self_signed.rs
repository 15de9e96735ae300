//! Self-signed certificates that a server creates for itself.

use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::authority::certificate_params;
use super::{ALPN_HTTP1, TlsError, crypto_provider};

/// A new key and a certificate signed with it. The key is never written to a file.
pub struct SelfSigned {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl SelfSigned {
    /// Generates a server certificate for `name` (as common name and as SAN), valid from one day
    /// ago until one year from now.
    pub fn generate(name: &str) -> Result<Self, TlsError> {
        let mut params = certificate_params(name, &[name.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { certificate, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() })
    }

    /// The certificate, for clients that should trust it.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Builds the configuration of a server that presents this certificate and does not ask for
    /// client certificates.
    pub fn server_config(self) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate], self.key)?;
        config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
        Ok(config)
    }
}
