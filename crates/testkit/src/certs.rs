//! A certificate authority of one's own and certificates for servers on loopback.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// A mistake while certificates are made; tests just print it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A name that never resolves (RFC 6761 §6.4), for servers that are reached through a proxy.
pub const PROXIED_NAME: &str = "origin.invalid";

/// The kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// P-256.
    Ecdsa,
    /// 2048 bits: what CDI's controller makes.
    Rsa,
}

impl KeyKind {
    fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::Ecdsa => KeyPair::generate(),
            Self::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        }
    }
}

/// A certificate and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    /// The certificate as PEM.
    pub certificate_pem: String,
    key: KeyPair,
}

impl Identity {
    /// The key as PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// The offer of a client in the handshake; without anything, that of rustls.
#[derive(Default)]
pub struct Offer<'a> {
    /// The certificate of the client.
    pub identity: Option<&'a Identity>,
    /// The only version.
    pub version: Option<&'static SupportedProtocolVersion>,
    /// The only cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// Protocols for ALPN.
    pub protocols: &'a [&'a str],
}

/// A fresh certificate authority that nothing else trusts.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a key and a self-signed CA certificate.
    pub fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        // Not the name that leaves get by default: OpenSSL takes a leaf of that name for its own issuer.
        params.distinguished_name.push(DnType::CommonName, "testkit authority");
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

    /// A server's certificate for loopback and [`PROXIED_NAME`].
    pub fn server(&self, kind: KeyKind) -> Result<Identity, Error> {
        self.server_named(&[], kind)
    }

    /// A server's certificate for loopback, [`PROXIED_NAME`] and `names`.
    pub fn server_named(&self, names: &[String], kind: KeyKind) -> Result<Identity, Error> {
        let mut params = loopback_params()?;
        params.subject_alt_names.extend(CertificateParams::new(names)?.subject_alt_names);
        self.issue(&params, kind)
    }

    /// The certificate of a server for `names` alone, and not for loopback.
    pub fn server_of(&self, names: &[&str]) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.issue(&CertificateParams::new(names)?, KeyKind::Ecdsa)
    }

    /// The certificate of a server for loopback that was valid until the end of 2020.
    pub fn expired_server(&self) -> Result<Identity, Error> {
        let mut params = loopback_params()?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 12, 31);
        self.issue(&params, KeyKind::Ecdsa)
    }

    /// A client's certificate with this common name, of any length.
    pub fn client(&self, common_name: &str, kind: KeyKind) -> Result<Identity, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&params, kind)
    }

    fn issue(&self, params: &CertificateParams, kind: KeyKind) -> Result<Identity, Error> {
        let key = kind.generate()?;
        let leaf = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: leaf.der().clone(), certificate_pem: leaf.pem(), key })
    }

    /// A client that trusts this authority and no other, and makes the offer.
    pub fn client_config_for(&self, offer: &Offer<'_>) -> Result<Arc<ClientConfig>, Error> {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        if let Some(only) = offer.cipher_suite {
            provider.cipher_suites.retain(|suite| suite.suite() == only);
        }
        let versions = offer.version.map_or(rustls::ALL_VERSIONS.to_vec(), |only| vec![only]);
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)?
            .with_root_certificates(roots);
        let mut config = match offer.identity {
            Some(identity) => {
                builder.with_client_auth_cert(vec![identity.certificate.clone()], identity.key_der())?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = offer.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// A server for loopback and [`PROXIED_NAME`] with a fresh certificate.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        self.server_config_for(&[])
    }

    /// The same, also for `names`.
    pub fn server_config_for(&self, names: &[&str]) -> Result<Arc<ServerConfig>, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let server = self.server_named(&names, KeyKind::Ecdsa)?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![server.certificate.clone()], server.key_der())?;
        Ok(Arc::new(config))
    }

    /// A server with this certificate that takes no client without one of this authority.
    pub fn mutual_config(&self, server: &Identity) -> Result<Arc<ServerConfig>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![server.certificate.clone()], server.key_der())?;
        Ok(Arc::new(config))
    }

    /// A client that trusts this authority and no other.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        client_config(roots)
    }
}

/// A client that trusts no server: for plain HTTP, and for the failure of TLS.
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
