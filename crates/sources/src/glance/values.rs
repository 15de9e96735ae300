//! An [`Access`] in the keys of a secret, or in the variables of OpenStack's own client.
//!
//! What goes together is what Go's client library, which CDI uses, takes; an id wins over a name.

use program::env::EnvReader;
use program::secret::Secret;

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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::access::Question;
    use super::*;

    fn read(names: Names, pairs: &[(&str, &str)]) -> Result<Access, String> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| (names.of(key), (*value).to_owned()));
        let values: HashMap<String, String> = pairs.collect();
        let mut reader = EnvReader::new(&values);
        let access = Access::read(&mut reader, names);
        let finished = reader.finish().map_err(|errors| errors.to_string());
        finished.map(|()| access.unwrap())
    }

    /// The request for a token, without its outermost level.
    fn asked(pairs: &[(&str, &str)]) -> String {
        match read(Names::Secret, pairs).unwrap().question() {
            Question::New(document) => document["auth"].to_string(),
            Question::About(token) => format!("about {}", token.expose()),
        }
    }

    #[test]
    fn variables_have_the_names_of_openstacks_client() {
        for (key, name) in [
            ("username", "OS_USERNAME"),
            ("userID", "OS_USER_ID"),
            ("projectDomainName", "OS_PROJECT_DOMAIN_NAME"),
            ("applicationCredentialID", "OS_APPLICATION_CREDENTIAL_ID"),
            ("availability", "OS_INTERFACE"),
            ("regionName", "OS_REGION_NAME"),
        ] {
            assert_eq!(Names::OpenStack.of(key), name);
            assert_eq!(Names::Secret.of(key), key);
        }
    }

    #[test]
    fn a_password_is_one_of_a_user_of_a_domain() {
        let user = |domain: &str| {
            format!(
                r#"{{"identity":{{"methods":["password"],"password":{{"user":{{"domain":{domain},"name":"u","password":"p"}}}}}}}}"#
            )
        };
        let of = |more: &[(&str, &str)]| asked(&[&[("username", "u"), ("password", "p")], more].concat());
        assert_eq!(of(&[("userDomainName", "d")]), user(r#"{"name":"d"}"#));
        assert_eq!(
            of(&[("userDomainName", "d"), ("userDomainID", "i")]),
            user(r#"{"id":"i"}"#)
        );
        assert_eq!(of(&[("defaultDomain", "d")]), user(r#"{"id":"d"}"#));
        let in_domain = of(&[("domainName", "d")]);
        assert!(
            in_domain.contains(r#""domain":{"name":"d"},"name":"u""#),
            "{in_domain}"
        );
        assert!(
            in_domain.contains(r#""scope":{"domain":{"name":"d"}}"#),
            "{in_domain}"
        );
        let by_id = asked(&[("userID", "i"), ("username", "u"), ("password", "p")]);
        assert!(by_id.contains(r#"{"user":{"id":"i","password":"p"}}"#), "{by_id}");
    }

    #[test]
    fn the_scope_is_a_project_else_the_system_else_a_domain() {
        let of = |more: &[(&str, &str)]| {
            let document = asked(&[&[("userID", "u"), ("password", "p")], more].concat());
            document
                .split_once(r#""scope":"#)
                .map_or("none".to_owned(), |(_, scope)| scope.to_owned())
        };
        let project = r#"{"project":{"domain":{"id":"d"},"name":"p"}}}"#;
        assert_eq!(
            of(&[("projectName", "p"), ("projectDomainID", "d"), ("domainID", "x")]),
            project
        );
        assert_eq!(of(&[("projectName", "p"), ("domainID", "d")]), project);
        assert_eq!(of(&[("projectName", "p"), ("defaultDomain", "d")]), project);
        assert_eq!(
            of(&[("projectID", "i"), ("projectName", "p")]),
            r#"{"project":{"id":"i"}}}"#
        );
        assert_eq!(
            of(&[("systemScope", "all"), ("domainID", "d")]),
            r#"{"system":{"all":true}}}"#
        );
        assert_eq!(of(&[("domainID", "d")]), r#"{"domain":{"id":"d"}}}"#);
        assert_eq!(of(&[("defaultDomain", "d")]), "none");
    }

    #[test]
    fn tokens_and_application_credentials_are_proofs_too() {
        let token = [("authType", "token"), ("token", "t")];
        assert_eq!(asked(&token), "about t");
        let rescoped = asked(&[&token[..], &[("projectID", "i")]].concat());
        let identity =
            r#"{"identity":{"methods":["token"],"token":{"id":"t"}},"scope":{"project":{"id":"i"}}}"#;
        assert_eq!(rescoped, identity);
        let secret = [
            ("authType", "applicationcredential"),
            ("applicationCredentialSecret", "s"),
        ];
        let of = |more: &[(&str, &str)]| asked(&[&secret[..], more].concat());
        let credential = |inner: &str| {
            format!(
                r#"{{"identity":{{"application_credential":{inner},"methods":["application_credential"]}}}}"#
            )
        };
        // Their scope is that of their making.
        assert_eq!(
            of(&[("applicationCredentialID", "i"), ("projectID", "p")]),
            credential(r#"{"id":"i","secret":"s"}"#)
        );
        assert_eq!(
            of(&[
                ("applicationCredentialName", "n"),
                ("username", "u"),
                ("domainName", "d")
            ]),
            credential(r#"{"name":"n","secret":"s","user":{"domain":{"name":"d"},"name":"u"}}"#)
        );
    }

    #[test]
    fn mistakes_name_the_variable_and_no_value() {
        for (pairs, sentence) in [
            (
                &[("authType", "hidden")][..],
                "environment variable authType: unsupported authentication type: ",
            ),
            (
                &[("userID", "hidden")],
                "environment variable password: is not set or empty",
            ),
            (
                &[("password", "hidden")],
                "environment variable username: is not set or empty",
            ),
            (
                &[("username", "hidden"), ("password", "hidden")],
                "environment variable userDomainName: is not set",
            ),
            (
                &[
                    ("userID", "hidden"),
                    ("password", "hidden"),
                    ("projectName", "hidden"),
                ],
                "environment variable projectDomainName: is not set",
            ),
            (
                &[("authType", "token")],
                "environment variable token: is not set or empty",
            ),
            (
                &[("authType", "applicationcredential")],
                "environment variable applicationCredentialID: is not set or empty; \
                 environment variable applicationCredentialSecret: is not set or empty",
            ),
            (
                &[
                    ("userID", "u"),
                    ("password", "hidden"),
                    ("availability", "hidden"),
                ],
                "environment variable availability: is not public, internal or admin",
            ),
        ] {
            let error = read(Names::Secret, pairs).unwrap_err();
            assert!(
                error.starts_with(sentence) && !error.contains("hidden"),
                "{error}"
            );
        }
        let access = read(Names::OpenStack, &[("userID", "u"), ("password", "hidden")]).unwrap();
        assert!(!format!("{access:?}").contains("hidden"), "{access:?}");
    }
}
