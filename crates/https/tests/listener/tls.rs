//! Which servers a client accepts, with real TLS handshakes.
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use https::tls::{self, TrustedRoots};
use program::paths::PodPaths;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const NAME: &str = "images.example";

/// The certificate that a server presents, and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pem: String,
}

impl Identity {
    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        let pem_key = key.serialize_pem();
        Self {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::from_pem_slice(pem_key.as_bytes()).unwrap(),
            pem: certificate.pem(),
        }
    }
}

/// Returns a certificate like those of `openssl req -x509`: self-signed and a CA at the same time,
/// which webpki alone would refuse for a server.
fn openssl_style(adjust: impl FnOnce(&mut CertificateParams)) -> Identity {
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    adjust(&mut params);
    let key = KeyPair::generate().unwrap();
    Identity::new(&params.self_signed(&key).unwrap(), &key)
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issued_by(authority: &CertifiedIssuer<'static, KeyPair>) -> Identity {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([NAME.to_owned()]).unwrap();
    Identity::new(&params.signed_by(&key, authority).unwrap(), &key)
}

fn trusting(certificates: &[&CertificateDer<'static>]) -> ClientConfig {
    let mut roots = TrustedRoots::none();
    for &certificate in certificates {
        roots.add_certificate(certificate.clone());
    }
    tls::client_config(roots).unwrap()
}

/// Connects `client` to a server with `identity`; returns the client's error if it refuses.
async fn connect_with(
    client: ClientConfig,
    identity: &Identity,
    name: &'static str,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<(), String> {
    let mut server = ServerConfig::builder_with_provider(program::crypto::crypto_provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (client_end, server_end) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(accept(server, server_end));
    let server_name = ServerName::try_from(name).unwrap();
    let connected = TlsConnector::from(Arc::new(client)).connect(server_name, client_end).await;
    serving.await.unwrap();
    let stream = connected.map_err(|error| error.to_string())?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    Ok(())
}

async fn connect(
    client: ClientConfig,
    identity: &Identity,
    name: &'static str,
) -> Result<(), String> {
    connect_with(client, identity, name, rustls::ALL_VERSIONS).await
}

/// Runs the server's end of a handshake, whether or not it succeeds.
async fn accept(server: ServerConfig, io: tokio::io::DuplexStream) {
    drop(TlsAcceptor::from(Arc::new(server)).accept(io).await);
}

fn assert_refused(outcome: Result<(), String>, reason: &str) {
    let text = outcome.expect_err(reason);
    assert!(text.contains(reason), "{text}");
}

#[tokio::test]
async fn a_configured_self_signed_certificate_is_accepted_and_insecurely_any() {
    let server = openssl_style(|_| {});
    for version in rustls::ALL_VERSIONS {
        let client = trusting(&[&server.certificate]);
        assert_eq!(connect_with(client, &server, NAME, &[version]).await, Ok(()), "{version:?}");
        let client = tls::insecure_client_config().unwrap();
        assert_eq!(connect_with(client, &server, "other.example", &[version]).await, Ok(()));
    }
}

#[tokio::test]
async fn a_self_signed_certificate_must_have_the_right_name_and_time() {
    let server = openssl_style(|_| {});
    let outcome = connect(trusting(&[&server.certificate]), &server, "other.example").await;
    assert_refused(outcome, "not valid for name");

    let day = Duration::from_secs(86_400);
    let expired = openssl_style(|params| params.not_after = (SystemTime::now() - day).into());
    assert_refused(connect(trusting(&[&expired.certificate]), &expired, NAME).await, "Expired");
    let early = openssl_style(|params| params.not_before = (SystemTime::now() + day).into());
    assert_refused(connect(trusting(&[&early.certificate]), &early, NAME).await, "NotValidYet");
}

#[tokio::test]
async fn a_server_without_the_key_of_its_certificate_is_refused() {
    let known = openssl_style(|_| {});
    let other_key = program::crypto::crypto_provider()
        .key_provider
        .load_private_key(openssl_style(|_| {}).key)
        .unwrap();
    let shown = CertifiedKey::new(vec![known.certificate.clone()], other_key);
    for version in rustls::ALL_VERSIONS {
        let server = ServerConfig::builder_with_provider(program::crypto::crypto_provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown.clone())));
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(accept(server, server_end));
        let client = TlsConnector::from(Arc::new(trusting(&[&known.certificate])));
        let outcome = client.connect(ServerName::try_from(NAME).unwrap(), client_end).await;
        assert_refused(outcome.map(drop).map_err(|error| error.to_string()), "BadSignature");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn a_chain_to_a_configured_authority_is_accepted_and_any_other_refused() {
    let ours = authority("ours");
    let server = issued_by(&ours);
    assert_eq!(connect(trusting(&[ours.der()]), &server, NAME).await, Ok(()));
    // The certificate itself suffices, without its issuer.
    assert_eq!(connect(trusting(&[&server.certificate]), &server, NAME).await, Ok(()));
    let outcome = connect(trusting(&[ours.der()]), &server, "other.example").await;
    assert_refused(outcome, "not valid for name");
    let theirs = authority("theirs");
    // Another authority of the same name is not trusted.
    let namesake = authority("ours");
    for (roots, reason) in [
        (&[theirs.der()][..], "UnknownIssuer"),
        (&[namesake.der()], "BadSignature"),
        (&[], "UnknownIssuer"),
    ] {
        assert_refused(connect(trusting(roots), &server, NAME).await, reason);
    }
}

#[tokio::test]
async fn a_pod_trusts_its_mounted_folders() {
    let (in_certs, in_proxy_certs, nowhere) =
        (openssl_style(|_| {}), openssl_style(|_| {}), openssl_style(|_| {}));
    let root = tempfile::tempdir().unwrap();
    let paths = PodPaths::from_prefix(root.path().to_str());
    let certs = root.path().join("certs");
    for (folder, identity) in [(&certs, &in_certs), (&paths.proxy_certs(), &in_proxy_certs)] {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("ca"), &identity.pem).unwrap();
    }
    let pod = |insecure| tls::pod_client_config(&paths, Some(certs.as_path()), insecure).unwrap();
    assert_eq!(connect(pod(false), &in_certs, NAME).await, Ok(()));
    assert_eq!(connect(pod(false), &in_proxy_certs, NAME).await, Ok(()));
    assert_refused(connect(pod(false), &nowhere, NAME).await, "UnknownIssuer");
    assert_eq!(connect(pod(true), &nowhere, NAME).await, Ok(()));
}

#[test]
fn a_missing_certificate_folder_is_an_error_unless_insecure() {
    let paths = PodPaths::from_prefix(None);
    let missing = Path::new("/nonexistent-certs");
    let error = tls::pod_client_config(&paths, Some(missing), false).unwrap_err().to_string();
    assert!(error.starts_with("Error listing files in /nonexistent-certs: "), "{error}");
    assert!(tls::pod_client_config(&paths, Some(missing), true).is_ok());
}
