//! The claims in a token: issuer, times, and purpose.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::Number;

use super::{TokenError, UploadGrant};
use crate::names;

/// The issuer that a token must name.
const ISSUER: &str = "cdi-apiserver";

/// The only operation that the proxy supports.
const OPERATION: &str = "Upload";

/// The resource that a token must name.
const RESOURCE: &str = "persistentvolumeclaims";

/// Allowed difference between the clocks of the issuer and the proxy.
const LEEWAY: Duration = Duration::from_secs(10);

/// The claims of a token. Times are seconds since 1970 (RFC 7519 §2, NumericDate).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenClaims {
    iss: String,
    iat: Option<Number>,
    nbf: Option<Number>,
    exp: Option<Number>,
    operation: String,
    name: String,
    namespace: String,
    resource: TokenResource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenResource {
    resource: String,
}

impl TokenClaims {
    /// Checks the issuer and the times. A missing time is accepted.
    pub(super) fn check_validity(&self, now: SystemTime) -> Result<(), TokenError> {
        if self.iss != ISSUER {
            return Err(TokenError::Invalid("it has another issuer"));
        }
        let now = unix_seconds(now);
        let leeway = LEEWAY.as_secs_f64();
        let is = |time: &Option<Number>, wrong: fn(f64, f64) -> bool, leeway: f64| {
            let time = time.as_ref().and_then(Number::as_f64);
            // A missing time is never wrong, as in go-jose, which CDI uses.
            time.is_some_and(|time| wrong(time + leeway, now))
        };
        if is(&self.exp, |exp, now| exp < now, leeway) {
            return Err(TokenError::Invalid("it has expired"));
        }
        if is(&self.nbf, |nbf, now| nbf > now, -leeway) {
            return Err(TokenError::Invalid("it is not valid yet"));
        }
        if is(&self.iat, |iat, now| iat > now, -leeway) {
            return Err(TokenError::Invalid("it was issued in the future"));
        }
        Ok(())
    }

    /// Returns the grant described by the claims. The names become part of a host name, so only
    /// valid names are accepted, even though they are signed.
    pub(super) fn into_grant(self) -> Result<UploadGrant, TokenError> {
        if self.operation != OPERATION {
            return Err(TokenError::Unsuitable("it is for another operation"));
        }
        if self.resource.resource != RESOURCE {
            return Err(TokenError::Unsuitable("it is for another kind of resource"));
        }
        if !names::is_subdomain(&self.name) {
            return Err(TokenError::Unsuitable("it does not name a PVC"));
        }
        if !names::is_label(&self.namespace) {
            return Err(TokenError::Unsuitable("it does not name a namespace"));
        }
        Ok(UploadGrant { namespace: self.namespace, pvc: self.name })
    }
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_have_exactly_ten_seconds_of_leeway() {
        const NOW: u64 = 1_800_000_000;
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        for (claim, allowed, refused) in
            [("exp", NOW - 10, NOW - 11), ("nbf", NOW + 10, NOW + 11), ("iat", NOW + 10, NOW + 11)]
        {
            for (time, is_valid) in [(allowed, true), (refused, false)] {
                let claims = json!({ "iss": ISSUER, claim: time });
                let claims: TokenClaims = serde_json::from_value(claims).unwrap();
                assert_eq!(claims.check_validity(now).is_ok(), is_valid, "{claim} {time}");
            }
        }
    }
}
