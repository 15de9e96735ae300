//! Authentication in an OpenStack cloud: who requests a token, and which part of the cloud the
//! token is for (Keystone v3, "Authentication and token management").

use program::secret::Secret;
use serde_json::{Value, json};

/// Identity and choice of services, read from a Secret or the environment by
/// [`GlanceAccess::from_env`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlanceAccess {
    pub(super) proof: AuthMethod,
    /// The region whose services are used; `None` uses the only one.
    pub(super) region: Option<String>,
    pub(super) interface: EndpointInterface,
}

/// Proof of the user's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthMethod {
    Password {
        user: KeystoneUser,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeystoneUser {
    Id(String),
    Named { name: String, domain: KeystoneDomain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeystoneCredential {
    Id(String),
    Named { name: String, user: KeystoneUser },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeystoneDomain {
    Id(String),
    Name(String),
}

/// The part of the cloud that a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenScope {
    ProjectId(String),
    Project { name: String, domain: KeystoneDomain },
    Domain(KeystoneDomain),
    System,
}

/// The network that an endpoint is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointInterface {
    Public,
    Internal,
    Admin,
}

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
                let mut user = user.to_json();
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
                let mut credential = credential.to_json();
                credential["secret"] = secret.expose().into();
                let methods = ["application_credential"];
                (json!({"methods": methods, "application_credential": credential}), None)
            }
        };
        let mut auth = json!({"identity": identity});
        if let Some(scope) = scope {
            auth["scope"] = scope.to_json();
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

impl KeystoneUser {
    fn to_json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Named { name, domain } => json!({"name": name, "domain": domain.to_json()}),
        }
    }
}

impl KeystoneCredential {
    fn to_json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Named { name, user } => json!({"name": name, "user": user.to_json()}),
        }
    }
}

impl KeystoneDomain {
    fn to_json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name(name) => json!({"name": name}),
        }
    }
}

impl TokenScope {
    fn to_json(&self) -> Value {
        match self {
            Self::ProjectId(id) => json!({"project": {"id": id}}),
            Self::Project { name, domain } => {
                json!({"project": {"name": name, "domain": domain.to_json()}})
            }
            Self::Domain(domain) => json!({"domain": domain.to_json()}),
            Self::System => json!({"system": {"all": true}}),
        }
    }
}

impl EndpointInterface {
    pub(super) const ALL: [Self; 3] = [Self::Public, Self::Internal, Self::Admin];

    /// Returns the name of the interface in a catalogue.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}
