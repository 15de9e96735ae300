//! Tokens for a registry (distribution specification, "Token Authentication Implementation"). No
//! token service needs to run, because tokens can be signed in advance.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::certs::Authority;
use crate::fail::OrFail;
use crate::tokens::{compact, now};

/// The issuer of tokens that the registry is configured with.
pub const ISSUER: &str = "token service of a test";

/// The registry's name in tokens.
pub const SERVICE: &str = "registry of a test";

/// Signs tokens that a registry accepts.
pub struct TokenIssuer {
    certificate: String,
    key: EcdsaKeyPair,
}

impl TokenIssuer {
    /// Makes an issuer with a fresh key.
    pub fn new() -> Self {
        let authority = Authority::new().or_fail("an authority");
        let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der(&key))
            .or_fail("a P-256 key");
        Self { certificate, key }
    }

    /// The certificate with which the registry verifies tokens.
    pub(super) fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// The response of a token service: a token that allows pulling `repository` for five minutes.
    pub fn grant(&self, repository: &str) -> String {
        let now = now();
        let claims = json!({
            "iss": ISSUER,
            "sub": "",
            "aud": SERVICE,
            "exp": now + 300,
            "nbf": now - 10,
            "iat": now,
            "jti": "1",
            "access": [{ "type": "repository", "name": repository, "actions": ["pull"] }],
        });
        let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(der(&self.certificate))] });
        let token = compact(&header, &claims, |message| {
            let signature = self.key.sign(&SystemRandom::new(), message).or_fail("a signature");
            signature.as_ref().to_vec()
        });
        let grant: Value = json!({ "token": token, "expires_in": 300 });
        grant.to_string()
    }
}

impl Default for TokenIssuer {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes a PEM text (RFC 7468).
fn der(pem: &str) -> Vec<u8> {
    let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(text).or_fail("PEM")
}
