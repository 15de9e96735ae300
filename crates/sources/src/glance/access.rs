//! The party that asks for a token, and the part of the cloud that the token is for (Keystone v3, "Authentication and token
//! management").

use program::secret::Secret;
use serde_json::{Value, json};

/// Identity and choice of services: read from a secret or the environment by [`Access::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub(super) proof: Proof,
    /// The region whose services are asked; the only one if there is none.
    pub(super) region: Option<String>,
    pub(super) interface: Interface,
}

/// Proof of who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proof {
    Password {
        user: User,
        password: Secret,
        scope: Option<Scope>,
    },
    /// A token that exists: exchanged for one of the scope, or used as it is.
    Token { token: Secret, scope: Option<Scope> },
    /// Its scope is that of its making.
    ApplicationCredential { credential: Credential, secret: Secret },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum User {
    Id(String),
    Named { name: String, domain: Domain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    Id(String),
    Named { name: String, user: User },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Domain {
    Id(String),
    Name(String),
}

/// The part of the cloud that a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    ProjectId(String),
    Project { name: String, domain: Domain },
    Domain(Domain),
    System,
}

/// The network that endpoints are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Public,
    Internal,
    Admin,
}

/// The question for a token.
pub(super) enum Question<'a> {
    /// A new one, for the document that proves who asks.
    New(Value),
    /// The one that exists: whether it holds, and what for.
    About(&'a Secret),
}

impl Access {
    /// The question that the identity service is asked.
    pub(super) fn question(&self) -> Question<'_> {
        let (identity, scope) = match &self.proof {
            Proof::Password {
                user,
                password,
                scope,
            } => {
                let mut user = user.json();
                user["password"] = password.expose().into();
                let identity = json!({"methods": ["password"], "password": {"user": user}});
                (identity, scope.as_ref())
            }
            Proof::Token { token, scope: None } => return Question::About(token),
            Proof::Token { token, scope } => {
                let identity = json!({"methods": ["token"], "token": {"id": token.expose()}});
                (identity, scope.as_ref())
            }
            Proof::ApplicationCredential { credential, secret } => {
                let mut credential = credential.json();
                credential["secret"] = secret.expose().into();
                let methods = ["application_credential"];
                (
                    json!({"methods": methods, "application_credential": credential}),
                    None,
                )
            }
        };
        let mut auth = json!({"identity": identity});
        if let Some(scope) = scope {
            auth["scope"] = scope.json();
        }
        Question::New(json!({"auth": auth}))
    }

    /// The proof, as a sentence calls it, and its secret.
    pub(super) fn secret(&self) -> (&'static str, &Secret) {
        match &self.proof {
            Proof::Password { password, .. } => ("the user name or password", password),
            Proof::Token { token, .. } => ("the token", token),
            Proof::ApplicationCredential { secret, .. } => ("the application credential", secret),
        }
    }
}

impl User {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Named { name, domain } => json!({"name": name, "domain": domain.json()}),
        }
    }
}

impl Credential {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Named { name, user } => json!({"name": name, "user": user.json()}),
        }
    }
}

impl Domain {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name(name) => json!({"name": name}),
        }
    }
}

impl Scope {
    fn json(&self) -> Value {
        match self {
            Self::ProjectId(id) => json!({"project": {"id": id}}),
            Self::Project { name, domain } => json!({"project": {"name": name, "domain": domain.json()}}),
            Self::Domain(domain) => json!({"domain": domain.json()}),
            Self::System => json!({"system": {"all": true}}),
        }
    }
}

impl Interface {
    pub(super) const ALL: [Self; 3] = [Self::Public, Self::Internal, Self::Admin];

    /// Its name in a catalogue.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}
