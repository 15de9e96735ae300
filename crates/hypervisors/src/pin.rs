//! Trust in a single certificate, which is identified by its thumbprint.

use std::fmt;
use std::sync::Arc;

use https::tls;
use rustls::{ClientConfig, Error};
use stream::digest::{Checksum, ChecksumError, DigestAlgorithm, RunningDigest};
use stream::error::{SourceError, SourceErrorKind};

/// The thumbprint of a certificate: SHA-1 as vSphere shows it (`AA:BB:…`), or SHA-256.
#[derive(Debug, Clone)]
pub(crate) struct Thumbprint(Checksum);

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Thumbprint {
    /// True if `text` contains only characters that are allowed in a thumbprint.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.chars().all(|char| char.is_ascii_hexdigit() || char == ':' || char.is_whitespace())
    }

    /// Parses pairs of hexadecimal digits, with or without colons between them.
    pub(crate) fn parse(text: &str) -> Result<Self, SourceError> {
        let hex = text.trim().replace(':', "");
        let algorithm = if hex.len() == 64 { "sha256" } else { "sha1" };
        format!("{algorithm}:{hex}").parse().map(Self).map_err(|error: ChecksumError| {
            let what = format!("{text:?} is not a certificate thumbprint");
            SourceError::with_context(SourceErrorKind::Invalid, what, error)
        })
    }

    /// Returns the SHA-256 thumbprint of `certificate` (DER).
    pub(crate) fn of_certificate(certificate: &[u8]) -> Result<Self, SourceError> {
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        digest.update(certificate);
        Self::parse(digest.finish_digest().trim_start_matches("sha256:"))
    }

    /// True if this is the thumbprint of `certificate` (DER). Takes the same time wherever two
    /// thumbprints differ.
    pub(crate) fn is_of(&self, certificate: &[u8]) -> bool {
        let mut digest = RunningDigest::new(self.0.algorithm());
        digest.update(certificate);
        let (expected, found) = (self.0.to_string(), digest.finish_digest());
        let differing = expected.bytes().zip(found.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        expected.len() == found.len() && differing == 0
    }

    /// True for a SHA-256.
    pub(crate) fn is_sha256(&self) -> bool {
        self.0.algorithm() == DigestAlgorithm::Sha256
    }

    /// Returns TLS settings that trust the server with this certificate, and no other.
    pub(crate) fn client_config(self) -> Result<Arc<ClientConfig>, SourceError> {
        let is_it = move |certificate: &[u8]| {
            if self.is_of(certificate) {
                return Ok(());
            }
            let what = format!("the server's certificate does not have the thumbprint {}", self.0);
            Err(Error::General(what))
        };
        let config = tls::pinned_client_config(is_it);
        config.map(Arc::new).map_err(|error| {
            let what = "cannot prepare a client for the server";
            SourceError::with_context(SourceErrorKind::Connect, what, error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbprints_are_the_sha1_or_sha256_of_the_certificate() {
        // FIPS 180-4: SHA-1 of "abc".
        let colons = "A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D";
        let sha1 = Thumbprint::parse(colons).unwrap();
        assert!(sha1.is_of(b"abc") && !sha1.is_of(b"abd"));
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(Thumbprint::parse(sha256).unwrap().is_of(b"abc"));
        assert!(Thumbprint::of_certificate(b"abc").unwrap().is_of(b"abc"));
        for wrong in ["", "A9:99", "zz"] {
            assert!(Thumbprint::parse(wrong).is_err(), "{wrong}");
        }
        assert!(!Thumbprint::is_meant("testprint") && Thumbprint::is_meant("A9:99"));
    }
}
