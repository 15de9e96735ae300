//! A private certificate authority, and certificates for servers on loopback.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// An error while making certificates. Tests only print it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A name that never resolves (RFC 6761 §6.4), for servers that are reached only through a proxy.
pub const PROXIED_NAME: &str = "origin.invalid";

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// P-256.
    Ecdsa,
    /// RSA with 2048 bits, as CDI's controller makes it.
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

    /// A server with this certificate that asks for none of its clients.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        self.server_config_of(rustls::ALL_VERSIONS)
    }

    /// Like [`server_config`](Self::server_config), with these versions of TLS.
    pub fn server_config_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Arc<ServerConfig>, Error> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key_der())?;
        Ok(Arc::new(config))
    }

    fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// What a client offers in the handshake. Unset fields keep the defaults of rustls.
#[derive(Default)]
pub struct Offer<'a> {
    /// The certificate of the client.
    pub identity: Option<&'a Identity>,
    /// The only TLS version offered.
    pub version: Option<&'static SupportedProtocolVersion>,
    /// The only cipher suite offered.
    pub cipher_suite: Option<CipherSuite>,
    /// Protocols offered by ALPN.
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
        // A name of its own: rcgen gives leaf certificates a default name, and OpenSSL would take
        // a leaf with the same name for its own issuer.
        params.distinguished_name.push(DnType::CommonName, "testkit authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// The CA certificate as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for loopback and [`PROXIED_NAME`], and its key, both as PEM.
    pub fn leaf_pem(&self) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let leaf = loopback_params()?.signed_by(&key, &self.issuer)?;
        Ok((leaf.pem(), key.serialize_pem()))
    }

    /// A server certificate for loopback and [`PROXIED_NAME`].
    pub fn server(&self, kind: KeyKind) -> Result<Identity, Error> {
        self.server_named(&[], kind)
    }

    /// A server certificate for loopback, [`PROXIED_NAME`] and `names`.
    pub fn server_named(&self, names: &[String], kind: KeyKind) -> Result<Identity, Error> {
        let mut params = loopback_params()?;
        params.subject_alt_names.extend(CertificateParams::new(names)?.subject_alt_names);
        self.issue(&params, kind)
    }

    /// A server certificate for `names` only, not for loopback.
    pub fn server_of(&self, names: &[&str]) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.issue(&CertificateParams::new(names)?, KeyKind::Ecdsa)
    }

    /// A server certificate for loopback that expired at the end of 2020.
    pub fn expired_server(&self) -> Result<Identity, Error> {
        let mut params = loopback_params()?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 12, 31);
        self.issue(&params, KeyKind::Ecdsa)
    }

    /// A client certificate with this common name, which may have any length.
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

    /// The configuration of a client that trusts only this authority and makes this offer.
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
            Some(identity) => builder
                .with_client_auth_cert(vec![identity.certificate.clone()], identity.key_der())?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols =
            offer.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// The configuration of a server for loopback and [`PROXIED_NAME`], with a fresh certificate.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        self.server_config_for(&[])
    }

    /// Like [`server_config`](Self::server_config), with a certificate that is also valid for
    /// `names`.
    pub fn server_config_for(&self, names: &[&str]) -> Result<Arc<ServerConfig>, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.server_named(&names, KeyKind::Ecdsa)?.server_config()
    }

    /// The configuration of a server with this certificate that requires a client certificate of
    /// this authority.
    pub fn mutual_config(&self, server: &Identity) -> Result<Arc<ServerConfig>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![server.certificate.clone()], server.key_der())?;
        Ok(Arc::new(config))
    }

    /// The configuration of a client that trusts only this authority.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        client_config(roots)
    }
}

/// The configuration of a client that trusts no server, for plain HTTP and for handshakes that
/// must fail.
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
