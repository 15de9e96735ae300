//! Trust in one certificate, known by its thumbprint.

use std::fmt;
use std::sync::Arc;

use datapath::digest::{Checksum, ChecksumError, Digest};
use datapath::error::{SourceError, SourceErrorKind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The thumbprint of a certificate: SHA-1 as vSphere shows it (`AA:BB:…`), or SHA-256.
pub(super) struct Thumbprint(Checksum);

impl Thumbprint {
    /// Reads pairs of hexadecimal digits, with or without colons between them.
    pub(super) fn parse(text: &str) -> Result<Self, SourceError> {
        let hex = text.trim().replace(':', "");
        let algorithm = if hex.len() == 64 { "sha256" } else { "sha1" };
        format!("{algorithm}:{hex}")
            .parse()
            .map(Self)
            .map_err(|error: ChecksumError| {
                let what = format!("{text:?} is not the thumbprint of a certificate");
                SourceError::caused(SourceErrorKind::Invalid, what, error)
            })
    }

    fn is_of(&self, certificate: &[u8]) -> bool {
        let mut digest = Digest::new(self.0.algorithm());
        digest.update(certificate);
        self.0.verify(&digest.finish()).is_ok()
    }

    /// A client that trusts the server with this certificate, and no other.
    pub(super) fn client_config(self) -> Result<Arc<ClientConfig>, SourceError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(Pinned {
            thumbprint: self,
            provider: Arc::clone(&provider),
        });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SourceError::new(SourceErrorKind::Connect, error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

struct Pinned {
    thumbprint: Thumbprint,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.thumbprint.0)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.thumbprint.is_of(end_entity) {
            Ok(ServerCertVerified::assertion())
        } else {
            let message = format!(
                "the server's certificate has not got the thumbprint {}",
                self.thumbprint.0
            );
            Err(Error::General(message))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbprints_are_sha1_or_sha256_of_the_certificate() {
        // FIPS 180-4: SHA-1 of "abc".
        let colons = "A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D";
        let sha1 = Thumbprint::parse(colons).unwrap();
        assert!(sha1.is_of(b"abc") && !sha1.is_of(b"abd"));
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(Thumbprint::parse(sha256).unwrap().is_of(b"abc"));
        for wrong in ["", "A9:99", "zz"] {
            assert!(Thumbprint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
