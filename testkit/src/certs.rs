//! A certificate authority of one's own and certificates for servers on loopback.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// What can go wrong while certificates are made; tests just print it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A name that never resolves (RFC 6761 §6.4), for servers that are reached through a proxy.
pub const PROXIED_NAME: &str = "origin.invalid";

/// A fresh certificate authority that nobody else trusts.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a key and a self-signed CA certificate.
    pub fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        // Not the name that leaves get by default: OpenSSL takes a leaf of that name for its own issuer.
        params
            .distinguished_name
            .push(DnType::CommonName, "testkit authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// The CA certificate as PEM, for a certificate directory.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate and its key as PEM for loopback and [`PROXIED_NAME`].
    pub fn leaf_pem(&self) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let leaf = loopback_params()?.signed_by(&key, &self.issuer)?;
        Ok((leaf.pem(), key.serialize_pem()))
    }

    /// A server for loopback and [`PROXIED_NAME`] with a fresh certificate.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        let key = KeyPair::generate()?;
        let leaf = loopback_params()?.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)?;
        Ok(Arc::new(config))
    }

    /// A client that trusts this authority and no other.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        client_config(roots)
    }
}

/// A client that trusts nobody: for plain HTTP, and for the failure of TLS.
pub fn distrustful_client_config() -> Result<Arc<ClientConfig>, Error> {
    client_config(RootCertStore::empty())
}

fn client_config(roots: RootCertStore) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn loopback_params() -> Result<CertificateParams, Error> {
    let names = ["localhost", "127.0.0.1", "::1", PROXIED_NAME];
    Ok(CertificateParams::new(names.map(str::to_owned))?)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
