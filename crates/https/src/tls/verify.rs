//! Decides whether a client trusts a server's certificate.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::time::ASN1Time;

use super::{TlsError, TrustedRoots, crypto_provider};

/// A function that accepts exactly one certificate, given in DER.
type CertificateCheck = dyn Fn(&[u8]) -> Result<(), Error> + Send + Sync;

/// The servers that a client trusts.
pub(super) enum ServerTrust {
    /// Servers whose certificate is valid for their name and is trusted.
    Known(KnownCertificates),
    /// The server whose certificate this function accepts, whatever the certificate contains.
    Pinned(Box<CertificateCheck>),
    /// All servers (`INSECURE_TLS`). Without a trusted certificate a signature proves nothing, so
    /// signatures are not checked. Checking them would only reject the old servers (X.509 v1,
    /// short RSA keys) for which people use this option.
    Everyone,
}

/// The certificate verifier of a client. The server must also prove that it holds the private key,
/// except with [`ServerTrust::Everyone`].
pub(super) struct ServerVerifier {
    pub(super) trust: ServerTrust,
    pub(super) provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let known = match &self.trust {
            ServerTrust::Known(known) => known,
            ServerTrust::Pinned(is_it) => {
                is_it(end_entity)?;
                return Ok(ServerCertVerified::assertion());
            }
            ServerTrust::Everyone => return Ok(ServerCertVerified::assertion()),
        };
        if known.exact.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            verify_validity(end_entity, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        let Some(chains) = &known.chains else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        match chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            // For an unknown self-signed certificate, webpki reports only that it is marked as a
            // CA. The actual problem for the user is that the certificate is not trusted.
            Err(_) if is_self_issued(end_entity) => Err(CertificateError::UnknownIssuer.into()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if matches!(self.trust, ServerTrust::Everyone) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if matches!(self.trust, ServerTrust::Everyone) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Verifies certificates as Go does: it accepts a chain to a trusted issuer, or a certificate that
/// is itself trusted.
///
/// The second case occurs when people create a certificate with `openssl req -x509` and put it
/// into both their server and CDI's ConfigMap. webpki rejects such a server certificate because it
/// is marked as a CA. The name and the validity period are checked in both cases.
pub(super) struct KnownCertificates {
    /// Verifies chains. It is `None` if no trusted certificate can be an issuer.
    chains: Option<Arc<WebPkiServerVerifier>>,
    exact: HashSet<CertificateDer<'static>>,
}

impl KnownCertificates {
    pub(super) fn new(roots: TrustedRoots) -> Result<Self, TlsError> {
        let TrustedRoots { issuers, exact } = roots;
        let chains = (!issuers.is_empty()).then(|| {
            let issuers = Arc::new(issuers);
            WebPkiServerVerifier::builder_with_provider(issuers, crypto_provider()).build()
        });
        Ok(Self { chains: chains.transpose()?, exact })
    }
}

fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    x509_parser::parse_x509_certificate(certificate)
        .is_ok_and(|(_, parsed)| parsed.subject() == parsed.issuer())
}

fn verify_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs())
        .ok()
        .and_then(|seconds| ASN1Time::from_timestamp(seconds).ok())
        .ok_or(Error::FailedToGetCurrentTime)?;
    let validity = parsed.validity();
    if now < validity.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}
