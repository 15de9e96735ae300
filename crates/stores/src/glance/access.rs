//! Authentication in an OpenStack cloud: who requests a token, and which part of the cloud the
//! token is for (Keystone v3, "Authentication and token management").

use program::secret::Secret;
use serde_json::{Value, json};

/// Identity and choice of services, read from a Secret or the environment by
/// [`GlanceAccess::from_env`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlanceAccess {
    pub(super) proof: IdentityProof,
    /// The region whose services are used; `None` uses the only one.
    pub(super) region: Option<String>,
    /// One of [`INTERFACES`].
    pub(super) interface: &'static str,
}

/// Proof of the user's identity. Its JSON is a part of the request for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdentityProof {
    pub(super) method: AuthMethod,
    /// The user or the application credential, without the secret; null for a token.
    pub(super) subject: Value,
    pub(super) secret: Secret,
    /// The part of the cloud that the token is for. `None` for the user's default, and for an
    /// application credential, whose scope was fixed when it was created.
    pub(super) scope: Option<Value>,
}

/// The kind of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthMethod {
    Password,
    /// An existing token, which is exchanged for one with the given scope, or used unchanged.
    Token,
    ApplicationCredential,
}

/// The networks that an endpoint may be meant for, by their names in a catalogue.
pub(super) const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

impl GlanceAccess {
    /// Returns the document that requests a token from the identity service. `None` if the existing
    /// token is used as it is, because there is no scope to exchange it for.
    pub(super) fn token_request(&self) -> Option<Value> {
        let IdentityProof { method, subject, secret, scope } = &self.proof;
        let mut subject = subject.clone();
        let identity = match method {
            AuthMethod::Password => {
                subject["password"] = secret.expose().into();
                json!({"methods": ["password"], "password": {"user": subject}})
            }
            AuthMethod::Token if scope.is_none() => return None,
            AuthMethod::Token => json!({"methods": ["token"], "token": {"id": secret.expose()}}),
            AuthMethod::ApplicationCredential => {
                subject["secret"] = secret.expose().into();
                let methods = ["application_credential"];
                json!({"methods": methods, "application_credential": subject})
            }
        };
        let mut auth = json!({"identity": identity});
        if let Some(scope) = scope {
            auth["scope"] = scope.clone();
        }
        Some(json!({"auth": auth}))
    }

    /// Returns the name of the proof of identity, for messages, and its secret.
    pub(super) fn named_secret(&self) -> (&'static str, &Secret) {
        let name = match self.proof.method {
            AuthMethod::Password => "the user name or password",
            AuthMethod::Token => "the token",
            AuthMethod::ApplicationCredential => "the application credential",
        };
        (name, &self.proof.secret)
    }
}
