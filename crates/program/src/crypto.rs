//! The cryptography for TLS: rustls with the aws-lc-rs provider.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Cipher suites with AES-128, the faster cipher.
const AES_128: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// Returns the provider for all our TLS configurations. It is passed explicitly, so that the
/// result does not depend on which crate installed a default for the process.
///
/// AES-128 comes first, as in Go and in browsers. No practical attack on it is known, and a
/// program that transfers whole disks spends much of its time in the cipher. AES-256 needs 14
/// rounds instead of 10 (FIPS 197 §5).
pub fn crypto_provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !AES_128.contains(&suite.suite()));
    Arc::new(provider)
}
