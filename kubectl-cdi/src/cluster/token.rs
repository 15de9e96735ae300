//! Tokens of CDI's aggregated API. A token permits uploads into one claim for five minutes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::jiff::Timestamp;
use program::secret::Secret;
use serde_json::{Value, json};

use super::Cluster;
use super::error::refused_object;
use super::object::text_at;
use super::resource::ResourceKind;
use crate::error::PluginError;

/// Returns the expiry time of a token (RFC 7519, section 4.1.4), or `None` if it cannot be parsed.
/// The signature is not verified.
pub fn token_expiry(token: &Secret) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.expose().split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

impl Cluster {
    /// Requests a token for the claim with this name.
    pub async fn request_token(&self, claim: &str) -> Result<Secret, PluginError> {
        let request = json!({
            "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
            "kind": "UploadTokenRequest",
            "metadata": {"generateName": "token-for-kubectl-cdi-"},
            "spec": {"pvcName": claim},
        });
        let answer = self.create_object(ResourceKind::TOKENS, claim, &request).await?;
        let token = text_at(&answer, "/status/token").filter(|token| is_token(token));
        let token = token.ok_or_else(|| {
            let object = format!("a token for pvc/{claim}");
            let reason = "the answer does not contain a valid token";
            refused_object(&object, &format!("{reason}; look at the log of cdi-apiserver"))
        })?;
        Ok(Secret::new(token))
    }
}

/// Returns true if `text` consists only of characters allowed in a bearer token (RFC 6750, section
/// 2.1). This is checked because users copy the printed command that contains the token.
fn is_token(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
    !text.is_empty() && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_is_read_from_the_token() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"exp": 1767225600}"#);
        let expires =
            |token: String| token_expiry(&Secret::new(token)).map(|time| time.to_string());
        assert_eq!(expires(format!("e30.{claims}.sig")).as_deref(), Some("2026-01-01T00:00:00Z"));
        for token in ["", "a.b.c", "opaque", "e30.e30.sig"] {
            assert_eq!(expires(token.to_owned()), None, "{token}");
        }
    }
}
