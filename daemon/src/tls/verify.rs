//! A client's decision whether a server is the one that it says.

use std::collections::HashSet;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::time::ASN1Time;

use super::{Roots, TlsError};

/// Verifies as Go does: a chain to a trusted issuer, or exactly a trusted certificate.
///
/// The second case is what people have when they make a certificate with `openssl req -x509` and put it both
/// into their server and into CDI's ConfigMap. webpki refuses it, because such a certificate calls itself a
/// CA. The name and the validity must be right in both cases, and the server must prove that it has the key.
#[derive(Debug)]
pub(super) struct KnownCertificates {
    /// `None` when no trusted certificate can be an issuer.
    chains: Option<Arc<WebPkiServerVerifier>>,
    exact: HashSet<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl KnownCertificates {
    pub(super) fn new(roots: Roots, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let Roots { issuers, exact } = roots;
        let chains = if issuers.is_empty() {
            None
        } else {
            let builder =
                WebPkiServerVerifier::builder_with_provider(Arc::new(issuers), Arc::clone(&provider));
            Some(builder.build()?)
        };
        Ok(Self {
            chains,
            exact,
            provider,
        })
    }
}

impl ServerCertVerifier for KnownCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.exact.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            verify_validity(end_entity, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        let Some(chains) = &self.chains else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        chains
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| {
                // Of an unknown self-signed certificate webpki says that it is a CA's. That is true, but what is
                // wrong with it for the user is that it is not trusted.
                if is_self_issued(end_entity) {
                    CertificateError::UnknownIssuer.into()
                } else {
                    error
                }
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    x509_parser::parse_x509_certificate(certificate)
        .is_ok_and(|(_, parsed)| parsed.subject() == parsed.issuer())
}

fn verify_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
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

/// Verifies nothing (`INSECURE_TLS`). Without a trusted certificate a signature proves nothing either, and checking
/// it would only refuse the old servers (X.509 v1, short RSA keys) for which people use this.
#[derive(Debug)]
pub(super) struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
