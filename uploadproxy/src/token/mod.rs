//! Verifies tokens. Each token allows uploads to one PVC.
//!
//! CDI's API server issues tokens (`UploadTokenRequest`) to every account that may create such a
//! request in the namespace. It signs them with a private key; the proxy has the public key. A
//! token is a compact JWS (RFC 7515 §3.1) that is valid for five minutes.

mod claims;

use std::time::SystemTime;

use http::{HeaderValue, StatusCode};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use self::claims::TokenClaims;

/// The permission that a verified token grants: uploads to this PVC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UploadGrant {
    /// The namespace of the PVC.
    pub namespace: String,
    /// The name of the PVC.
    pub pvc: String,
}

/// Reasons why a token does not permit a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("no bearer token in the Authorization header")]
    NoToken,
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    #[error("Bad token: {0}")]
    Unsuitable(&'static str),
}

impl TokenError {
    /// Returns the reason to report to the client, and advice on what to do. For an invalid token
    /// it does not state what is wrong, so that it does not help an attacker to forge one.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::NoToken => "no token: send the header \"Authorization: Bearer TOKEN\"\n",
            Self::Invalid(_) => {
                "the token has expired, or was not issued by this cluster: tokens are valid for five minutes; request a new one\n"
            }
            Self::Unsuitable(_) => {
                "the token is not for an upload to a claim (PVC): request a new one\n"
            }
        }
    }

    /// Returns the HTTP status that CDI's clients expect.
    pub(crate) fn status_code(self) -> StatusCode {
        match self {
            Self::NoToken | Self::Unsuitable(_) => StatusCode::BAD_REQUEST,
            Self::Invalid(_) => StatusCode::UNAUTHORIZED,
        }
    }
}

/// The first line of a public key in PEM (RFC 7468 §13).
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----";

/// Reasons why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not a valid key.
    #[error("it must be one RSA key in PEM: {0}")]
    Malformed(#[from] jsonwebtoken::errors::Error),
    /// The text is a private key, or contains more than one key. A private key would be parsed as
    /// a public key that matches no signature, and of several keys only one would be used.
    #[error("it must be one public key, which begins with {PUBLIC_KEY:?}")]
    NotPublic,
}

/// Verifies tokens with one public key.
pub struct TokenVerifier {
    key: DecodingKey,
    /// Settings that validate only the signature. [`TokenClaims`] checks times and names.
    signature: Validation,
}

impl TokenVerifier {
    /// Creates a verifier from the public key in `pem`.
    pub fn new(pem: &str) -> Result<Self, KeyError> {
        if !pem.trim_start().starts_with(PUBLIC_KEY) || pem.matches("-----BEGIN").count() != 1 {
            return Err(KeyError::NotPublic);
        }
        let key = DecodingKey::from_rsa_pem(pem.as_bytes())?;
        let mut signature = Validation::new(Algorithm::PS256);
        // CDI's API server signs with PS256, but its own verifier accepts any RSA algorithm that
        // the token header names.
        signature.algorithms = vec![
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
        ];
        signature.required_spec_claims.clear();
        signature.validate_exp = false;
        signature.validate_nbf = false;
        signature.validate_aud = false;
        Ok(Self { key, signature })
    }

    /// Returns the grant for the token in the `Authorization` header, as valid at the time `now`.
    pub(crate) fn verify_grant(
        &self,
        authorization: Option<&HeaderValue>,
        now: SystemTime,
    ) -> Result<UploadGrant, TokenError> {
        let token = authorization.and_then(bearer_token).ok_or(TokenError::NoToken)?;
        let decoded = jsonwebtoken::decode::<TokenClaims>(token, &self.key, &self.signature)
            .map_err(|_| TokenError::Invalid("it is malformed, or not signed by a trusted key"))?;
        if decoded.header.crit.is_some() {
            // RFC 7515 §4.1.11: `crit` lists extensions that a verifier must understand, and this
            // verifier supports none.
            return Err(TokenError::Invalid("it requires an extension that is not supported"));
        }
        let claims = decoded.claims;
        claims.check_validity(now)?;
        claims.into_grant()
    }
}

/// Returns the token in a header of the form `Bearer TOKEN` (RFC 6750 §2.1, without padding).
fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?;
    let (scheme, rest) = text.split_at_checked("Bearer".len())?;
    let token = rest.trim_start_matches([' ', '\t']);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    let matches = scheme.eq_ignore_ascii_case("Bearer")
        && token.len() < rest.len()
        && !token.is_empty()
        && token.bytes().all(allowed);
    matches.then_some(token)
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;

    use super::*;

    #[test]
    fn a_public_key_must_be_rsa() {
        assert!(TokenVerifier::new("").is_err());
        assert!(TokenVerifier::new(&KeyPair::generate().unwrap().public_key_pem()).is_err());
    }
}
