//! Certificates that a server makes for itself.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{ALPN_HTTP1, TlsError, provider};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Clocks of client and server may differ by this much.
const BACKDATED: Duration = DAY;
const LIFETIME: Duration = DAY.saturating_mul(365);

/// A fresh key and a certificate that only it has signed. The key is never written anywhere.
pub struct SelfSigned {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl SelfSigned {
    /// A server certificate for `name` (as CN and as SAN), valid from yesterday for one year from now.
    pub fn generate(name: &str) -> Result<Self, TlsError> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = SystemTime::now();
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + LIFETIME).into();
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            certificate,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    /// The certificate, for clients that shall trust it.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A server that shows this certificate and asks clients for none.
    pub fn server_config(self) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate], self.key)?;
        config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
        Ok(config)
    }
}
