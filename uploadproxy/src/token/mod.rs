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
    use std::time::{Duration, UNIX_EPOCH};

    use jsonwebtoken::{EncodingKey, Header};
    use proptest::prelude::*;
    use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize};
    use serde_json::{Value, json};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW)
    }

    struct Keys {
        private: String,
        verifier: TokenVerifier,
    }

    fn keys() -> Keys {
        let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        assert!(!pair.subject_public_key_info().is_empty());
        Keys {
            private: pair.serialize_pem(),
            verifier: TokenVerifier::new(&pair.public_key_pem()).unwrap(),
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "cdi-apiserver", "iat": NOW, "nbf": NOW, "exp": NOW + 300, "operation": "Upload",
            "name": "disk", "namespace": "ns", "params": {"a": "b"},
            "resource": {"group": "", "version": "v1", "resource": "persistentvolumeclaims"},
        })
    }

    impl Keys {
        fn sign(&self, algorithm: Algorithm, claims: &Value) -> String {
            let key = EncodingKey::from_rsa_pem(self.private.as_bytes()).unwrap();
            jsonwebtoken::encode(&Header::new(algorithm), claims, &key).unwrap()
        }

        fn judge(&self, token: &str) -> Result<UploadGrant, TokenError> {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            self.verifier.verify_grant(Some(&value), now())
        }

        fn judge_with(&self, change: impl FnOnce(&mut Value)) -> Result<UploadGrant, TokenError> {
            let mut claims = claims();
            change(&mut claims);
            self.judge(&self.sign(Algorithm::PS256, &claims))
        }
    }

    #[test]
    fn tokens_of_every_rsa_algorithm_are_granted() {
        let keys = keys();
        let grant = UploadGrant { namespace: "ns".to_owned(), pvc: "disk".to_owned() };
        for algorithm in keys.verifier.signature.algorithms.clone() {
            let judged = keys.judge(&keys.sign(algorithm, &claims()));
            assert_eq!(judged, Ok(grant.clone()), "{algorithm:?}");
        }
    }

    #[test]
    fn times_have_ten_seconds_of_leeway_and_may_be_missing() {
        let keys = keys();
        for (claim, allowed, refused) in
            [("exp", NOW - 10, NOW - 11), ("nbf", NOW + 10, NOW + 11), ("iat", NOW + 10, NOW + 11)]
        {
            assert!(keys.judge_with(|claims| claims[claim] = json!(allowed)).is_ok(), "{claim}");
            let refusal = keys.judge_with(|claims| claims[claim] = json!(refused));
            assert_eq!(refusal.unwrap_err().status_code(), 401, "{claim}");
            let missing = keys.judge_with(|claims| {
                claims.as_object_mut().unwrap().remove(claim);
            });
            assert!(missing.is_ok(), "{claim}");
            let text = keys.judge_with(|claims| claims[claim] = json!("soon"));
            assert_eq!(text.unwrap_err().status_code(), 401, "{claim}");
        }
    }

    #[test]
    fn another_issuer_is_unauthorised_and_another_purpose_a_bad_request() {
        let keys = keys();
        for (claim, value, status) in [
            ("iss", json!("me"), 401),
            ("operation", json!("Clone"), 400),
            ("name", json!(""), 400),
            ("namespace", json!(""), 400),
            ("namespace", json!("a.b"), 400),
            ("name", json!("a/../b"), 400),
            ("name", json!("evil.example:443/"), 400),
            ("resource", json!({"resource": "pods"}), 400),
            ("resource", json!({}), 400),
        ] {
            let refusal = keys.judge_with(|claims| claims[claim] = value.clone());
            assert_eq!(refusal.unwrap_err().status_code(), status, "{claim} {value}");
        }
    }

    #[test]
    fn a_header_without_a_bearer_token_is_a_bad_request() {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
        for text in [
            "",
            "Bearer",
            "Bearer ",
            "Bearera.b",
            "Basic a.b",
            "Bearer a.b=",
            "Bearer a b",
            "Bearer a.b ",
            "Bearer \u{e4}",
        ] {
            assert_eq!(bearer_token(&value(text)), None, "{text:?}");
        }
        for text in ["Bearer a.b-_~+/", "bearer a.b-_~+/", "BEARER   a.b-_~+/", "Bearer\ta.b-_~+/"]
        {
            assert_eq!(bearer_token(&value(text)), Some("a.b-_~+/"), "{text:?}");
        }
        assert_eq!(keys().verifier.verify_grant(None, now()).unwrap_err().status_code(), 400);
    }

    #[test]
    fn a_public_key_must_be_rsa() {
        assert!(TokenVerifier::new("").is_err());
        assert!(TokenVerifier::new(&KeyPair::generate().unwrap().public_key_pem()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_token_with_a_changed_byte_is_refused(position in 0..1000_usize, bit in 0..6_u32) {
            static KEYS: std::sync::OnceLock<Keys> = std::sync::OnceLock::new();
            let keys = KEYS.get_or_init(keys);
            let token = keys.sign(Algorithm::PS256, &claims());
            let mut bytes = token.clone().into_bytes();
            let position = position % bytes.len();
            bytes[position] ^= 1 << bit;
            let value = HeaderValue::from_bytes(&[b"Bearer ", &bytes[..]].concat());
            if let Ok(value) = value {
                prop_assert!(keys.verifier.verify_grant(Some(&value), now()).is_err());
            }
        }
    }
}
