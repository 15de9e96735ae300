//! An [`Access`] in the keys of a secret, or in the variables of OpenStack's own client.
//!
//! What goes together is what Go's client library, which CDI uses, takes; an id wins over a name.

use daemon::env::EnvReader;
use daemon::secret::Secret;

use super::access::{Access, Credential, Domain, Interface, Proof, Scope, User};

/// The spelling of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Keys of CDI's secret: `projectName`.
    Secret,
    /// Variables of OpenStack's client: `OS_PROJECT_NAME`.
    OpenStack,
}

impl Names {
    /// The name of the value that a secret has under `key`.
    fn of(self, key: &str) -> String {
        if self == Self::Secret {
            return key.to_owned();
        }
        let mut name = "OS".to_owned();
        let mut was_lower = false;
        // The only key that the client calls otherwise.
        for letter in if key == "availability" { "interface" } else { key }.chars() {
            if name.len() == 2 || (was_lower && letter.is_ascii_uppercase()) {
                name.push('_');
            }
            was_lower = letter.is_ascii_lowercase();
            name.push(letter.to_ascii_uppercase());
        }
        name
    }
}

impl Access {
    /// The access that the values of `reader` describe; `None` when one was rejected.
    pub fn read(reader: &mut EnvReader<'_>, names: Names) -> Option<Self> {
        let mut values = Values { reader, names };
        let (proof, interface) = (values.proof(), values.interface());
        Some(Self {
            proof: proof?,
            region: values.text("regionName"),
            interface: interface?,
        })
    }
}

struct Values<'reader, 'env> {
    reader: &'reader mut EnvReader<'env>,
    names: Names,
}

impl Values<'_, '_> {
    fn text(&self, key: &str) -> Option<String> {
        self.reader.text(&self.names.of(key))
    }

    fn reject(&mut self, key: &str, reason: &str) {
        self.reader.reject(&self.names.of(key), reason);
    }

    /// The value of `key`; its absence is a mistake.
    fn secret(&mut self, key: &str) -> Option<Secret> {
        let secret = self.reader.secret(&self.names.of(key));
        if secret.is_none() {
            self.reject(key, "is not set or empty");
        }
        secret
    }

    fn proof(&mut self) -> Option<Proof> {
        let kind = self
            .text("authType")
            .unwrap_or_else(|| self.usual_kind().to_owned());
        // OpenStack's client names the version of the API as well.
        match kind.strip_prefix("v3").unwrap_or(&kind) {
            "password" => {
                let (user, password, scope) = (self.user(), self.secret("password"), self.scope());
                Some(Proof::Password {
                    user: user?,
                    password: password?,
                    scope: scope?,
                })
            }
            "token" => {
                let (token, scope) = (self.secret("token"), self.scope());
                Some(Proof::Token {
                    token: token?,
                    scope: scope?,
                })
            }
            "applicationcredential" => {
                let (credential, secret) = (self.credential(), self.secret("applicationCredentialSecret"));
                Some(Proof::ApplicationCredential {
                    credential: credential?,
                    secret: secret?,
                })
            }
            _ => {
                let known = "unsupported authentication type: use password, token or applicationcredential";
                self.reject("authType", known);
                None
            }
        }
    }

    /// The type of an access that does not say: passwords come first, as in CDI.
    fn usual_kind(&self) -> &'static str {
        let has = |key| self.text(key).is_some();
        match () {
            () if has("password") => "password",
            () if has("applicationCredentialSecret") => "applicationcredential",
            () if has("token") => "token",
            () => "password",
        }
    }

    fn user(&mut self) -> Option<User> {
        if let Some(id) = self.text("userID") {
            return Some(User::Id(id));
        }
        let Some(name) = self.text("username") else {
            self.reject("username", "is not set or empty");
            return None;
        };
        let domain = self.domain_of("user")?;
        Some(User::Named { name, domain })
    }

    fn credential(&mut self) -> Option<Credential> {
        if let Some(id) = self.text("applicationCredentialID") {
            return Some(Credential::Id(id));
        }
        let Some(name) = self.text("applicationCredentialName") else {
            self.reject("applicationCredentialID", "is not set or empty");
            return None;
        };
        let user = self.user()?;
        Some(Credential::Named { name, user })
    }

    /// The scope, if there is one.
    fn scope(&mut self) -> Option<Option<Scope>> {
        let scope = if let Some(id) = self.text("projectID") {
            Some(Scope::ProjectId(id))
        } else if let Some(name) = self.text("projectName") {
            let domain = self.domain_of("project")?;
            Some(Scope::Project { name, domain })
        } else if self.text("systemScope").is_some() {
            Some(Scope::System)
        } else {
            self.domain("domain").map(Scope::Domain)
        };
        Some(scope)
    }

    /// The domain that the names of `owner` are of: its own, that of all, or the default.
    fn domain_of(&mut self, owner: &str) -> Option<Domain> {
        let own = format!("{owner}Domain");
        let domain = self
            .domain(&own)
            .or_else(|| self.domain("domain"))
            .or_else(|| self.text("defaultDomain").map(Domain::Id));
        if domain.is_none() {
            let reason = format!("is not set or empty: a name of a {owner} is one of a domain");
            self.reject(&format!("{own}Name"), &reason);
        }
        domain
    }

    fn domain(&self, prefix: &str) -> Option<Domain> {
        let id = self.text(&format!("{prefix}ID")).map(Domain::Id);
        id.or_else(|| self.text(&format!("{prefix}Name")).map(Domain::Name))
    }

    fn interface(&mut self) -> Option<Interface> {
        let Some(text) = self.text("availability") else {
            return Some(Interface::Public);
        };
        // The older names end in `URL`.
        let name = text.strip_suffix("URL").unwrap_or(&text);
        let known = Interface::ALL.into_iter().find(|known| known.name() == name);
        if known.is_none() {
            self.reject("availability", "is not public, internal or admin");
        }
        known
    }
}
