//! Upload tokens as cdi-apiserver signs them, and invalid ones (RFC 7515, RFC 7518).

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair,
    RsaSignatureEncoding,
};
use aws_lc_rs::{encoding, hmac};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::fail::OrFail;

/// Lifetime of a token of cdi-apiserver in seconds.
pub const LIFETIME_SECONDS: i64 = 300;

/// An RSA-2048 key pair like that of cdi-apiserver, which keeps the private half.
pub struct TokenKey {
    key: RsaKeyPair,
}

impl TokenKey {
    /// Generates a key pair.
    pub fn generate() -> Self {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).or_fail("an RSA key");
        Self { key }
    }

    /// The private key as PKCS #8.
    pub fn private_pem(&self) -> String {
        let der: encoding::Pkcs8V1Der<'static> = self.key.as_der().or_fail("a private key");
        pem("PRIVATE KEY", der.as_ref())
    }

    /// The public key as PKIX.
    pub fn public_pem(&self) -> String {
        let der: encoding::PublicKeyX509Der<'static> =
            self.key.public_key().as_der().or_fail("a public key");
        pem("PUBLIC KEY", der.as_ref())
    }

    /// A token for this PVC, as cdi-apiserver makes it.
    pub fn token(&self, pvc: &str, namespace: &str) -> String {
        self.sign("PS256", &claims(pvc, namespace))
    }

    /// A token with these claims, signed by one of the RSA algorithms of RFC 7518 §3.1.
    pub fn sign(&self, algorithm: &str, claims: &Value) -> String {
        self.sign_with(&json!({ "alg": algorithm }), algorithm, claims)
    }

    /// A token with this header, which may name another algorithm than the one used.
    pub fn sign_with(&self, header: &Value, algorithm: &str, claims: &Value) -> String {
        let encoding: &'static RsaSignatureEncoding = match algorithm {
            "RS256" => &RSA_PKCS1_SHA256,
            "RS384" => &RSA_PKCS1_SHA384,
            "RS512" => &RSA_PKCS1_SHA512,
            "PS256" => &RSA_PSS_SHA256,
            "PS384" => &RSA_PSS_SHA384,
            "PS512" => &RSA_PSS_SHA512,
            other => panic!("{other} is no RSA algorithm"),
        };
        compact(header, claims, |message| {
            let mut signature = vec![0; self.key.public_modulus_len()];
            self.key
                .sign(encoding, &SystemRandom::new(), message, &mut signature)
                .or_fail("a signature");
            signature
        })
    }
}

/// The claims that cdi-apiserver puts into a token issued now.
pub fn claims(pvc: &str, namespace: &str) -> Value {
    let now = now();
    json!({
        "iss": "cdi-apiserver",
        "iat": now,
        "nbf": now,
        "exp": now + LIFETIME_SECONDS,
        "operation": "Upload",
        "name": pvc,
        "namespace": namespace,
        "resource": { "group": "", "version": "v1", "resource": "persistentvolumeclaims" },
    })
}

/// The current time in seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).or_fail("a clock");
    i64::try_from(since.as_secs()).or_fail("a clock")
}

/// A token in compact form. `sign` returns the signature of the bytes that it gets.
pub fn compact(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

/// A token signed by HS256 with `secret`. If the secret is a public key, this is the classic key
/// confusion attack.
pub fn hs256(secret: &[u8], claims: &Value) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    compact(&json!({ "alg": "HS256" }), claims, |message| {
        hmac::sign(&key, message).as_ref().to_vec()
    })
}

/// A token signed by ES256 with a key that nobody else knows.
pub fn es256(claims: &Value) -> String {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).or_fail("a P-256 key");
    compact(&json!({ "alg": "ES256" }), claims, |message| {
        let signature = key.sign(&SystemRandom::new(), message).or_fail("a signature");
        signature.as_ref().to_vec()
    })
}

/// A token that claims to need no signature.
pub fn unsigned(claims: &Value) -> String {
    compact(&json!({ "alg": "none" }), claims, |_| Vec::new())
}

/// Encodes as PEM (RFC 7468), in lines of 64 characters.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem += &String::from_utf8_lossy(line);
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}
