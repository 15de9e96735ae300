//! The cryptography of TLS: rustls with the aws-lc-rs provider.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The suites with the faster cipher.
const AES_128: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// The cryptography of every configuration of ours. Passed explicitly, so that nothing depends on which crate installed a process-wide
/// default.
///
/// AES with 128 bits comes first, as with Go and the browsers: nothing breaks it, and a program that moves whole disks
/// spends its time in the cipher. 256 bits take 14 rounds instead of 10 (FIPS 197 §5).
pub fn crypto_provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !AES_128.contains(&suite.suite()));
    Arc::new(provider)
}

/// Makes aws-lc-rs the default of the process, for libraries that take no configuration. Later calls do nothing.
pub fn install_provider() {
    if aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was already installed");
    }
}
