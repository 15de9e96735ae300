//! Authentication in an OpenStack cloud: who requests a token, and which part of the cloud the
//! token is for (Keystone v3, "Authentication and token management").

use program::secret::Secret;
use serde::Serialize;
use serde_json::{Value, json};

/// Identity and choice of services, read from a Secret or the environment by
/// [`GlanceAccess::from_env`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlanceAccess {
    pub(super) proof: AuthMethod,
    /// The region whose services are used; `None` uses the only one.
    pub(super) region: Option<String>,
    /// One of [`INTERFACES`].
    pub(super) interface: &'static str,
}

/// Proof of the user's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthMethod {
    Password {
        user: KeystoneName,
        password: Secret,
        scope: Option<TokenScope>,
    },
    /// An existing token, which is exchanged for one with the given scope, or used unchanged.
    Token {
        token: Secret,
        scope: Option<TokenScope>,
    },
    /// An application credential, whose scope was fixed when it was created.
    ApplicationCredential {
        credential: KeystoneCredential,
        secret: Secret,
    },
}

/// A user or a project, as Keystone's JSON names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeystoneName {
    Id(String),
    /// A name, which is unique only within its domain.
    #[serde(untagged)]
    Named {
        name: String,
        domain: KeystoneDomain,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeystoneCredential {
    Id(String),
    #[serde(untagged)]
    Named {
        name: String,
        user: KeystoneName,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeystoneDomain {
    Id(String),
    Name(String),
}

/// The part of the cloud that a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TokenScope {
    Project(KeystoneName),
    Domain(KeystoneDomain),
    System {
        /// Always true: no other part of the system can be named.
        all: bool,
    },
}

/// The networks that an endpoint may be meant for, by their names in a catalogue.
pub(super) const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

/// The request for a token.
pub(super) enum TokenQuery<'a> {
    /// Creates a token; the document proves the identity.
    New(Value),
    /// Asks about an existing token: whether it is valid, and what it is for.
    About(&'a Secret),
}

impl GlanceAccess {
    /// Returns the request to send to the identity service.
    pub(super) fn token_query(&self) -> TokenQuery<'_> {
        let (identity, scope) = match &self.proof {
            AuthMethod::Password { user, password, scope } => {
                let mut user = json!(user);
                user["password"] = password.expose().into();
                let identity = json!({"methods": ["password"], "password": {"user": user}});
                (identity, scope.as_ref())
            }
            // Without a scope to exchange it for, the token is used as it is.
            AuthMethod::Token { token, scope: None } => return TokenQuery::About(token),
            AuthMethod::Token { token, scope } => {
                let identity = json!({"methods": ["token"], "token": {"id": token.expose()}});
                (identity, scope.as_ref())
            }
            AuthMethod::ApplicationCredential { credential, secret } => {
                let mut credential = json!(credential);
                credential["secret"] = secret.expose().into();
                let methods = ["application_credential"];
                (json!({"methods": methods, "application_credential": credential}), None)
            }
        };
        let mut auth = json!({"identity": identity});
        if let Some(scope) = scope {
            auth["scope"] = json!(scope);
        }
        TokenQuery::New(json!({"auth": auth}))
    }

    /// Returns the name of the proof of identity, for messages, and its secret.
    pub(super) fn named_secret(&self) -> (&'static str, &Secret) {
        match &self.proof {
            AuthMethod::Password { password, .. } => ("the user name or password", password),
            AuthMethod::Token { token, .. } => ("the token", token),
            AuthMethod::ApplicationCredential { secret, .. } => {
                ("the application credential", secret)
            }
        }
    }
}
