//! Reads a [`GlanceAccess`] from the keys of a Secret, or from the variables of OpenStack's own
//! client.
//!
//! The accepted combinations of values are the same as in Go's client library, which CDI uses. An
//! ID takes precedence over a name.

use program::env::EnvReader;
use program::secret::Secret;
use serde_json::{Value, json};

use super::access::{AuthMethod, GlanceAccess, INTERFACES, IdentityProof};

/// The spelling of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameStyle {
    /// Keys of CDI's Secret: `projectName`.
    Secret,
    /// Variables of OpenStack's client: `OS_PROJECT_NAME`.
    OpenStack,
}

impl NameStyle {
    /// Returns the name of the value that a Secret stores under `key`.
    fn key_name(self, key: &str) -> String {
        if self == Self::Secret {
            return key.to_owned();
        }
        let mut name = "OS".to_owned();
        let mut was_lower = false;
        // `availability` is the only key that has a different name in the client.
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

impl GlanceAccess {
    /// Reads the access that the values of `reader` describe; `None` if a value was rejected.
    pub fn from_env(reader: &mut EnvReader<'_>, names: NameStyle) -> Option<Self> {
        let mut values = AccessReader { reader, names };
        let (proof, interface) = (values.read_proof(), values.read_interface());
        Some(Self { proof: proof?, region: values.read_text("regionName"), interface: interface? })
    }
}

struct AccessReader<'reader, 'env> {
    reader: &'reader mut EnvReader<'env>,
    names: NameStyle,
}

impl AccessReader<'_, '_> {
    fn read_text(&self, key: &str) -> Option<String> {
        self.reader.read_text(&self.names.key_name(key))
    }

    fn reject_key(&mut self, key: &str, reason: &str) {
        self.reader.reject_variable(&self.names.key_name(key), reason);
    }

    /// Returns the value of `key`. If it is missing, the key is rejected.
    fn require_secret(&mut self, key: &str) -> Option<Secret> {
        let secret = self.reader.read_secret(&self.names.key_name(key));
        if secret.is_none() {
            self.reject_key(key, "is not set or empty");
        }
        secret
    }

    fn read_proof(&mut self) -> Option<IdentityProof> {
        let kind = self.read_text("authType").unwrap_or_else(|| self.usual_kind().to_owned());
        // In OpenStack's client, this value may begin with the version of the API.
        let (method, subject, secret, scope) = match kind.strip_prefix("v3").unwrap_or(&kind) {
            "password" => {
                let (user, password) = (self.read_user(), self.require_secret("password"));
                (AuthMethod::Password, user, password, self.read_scope())
            }
            "token" => {
                let token = self.require_secret("token");
                (AuthMethod::Token, Some(Value::Null), token, self.read_scope())
            }
            "applicationcredential" => {
                let credential = self.read_credential();
                let secret = self.require_secret("applicationCredentialSecret");
                (AuthMethod::ApplicationCredential, credential, secret, Some(None))
            }
            _ => {
                let known =
                    "unsupported authentication type: use password, token or applicationcredential";
                self.reject_key("authType", known);
                return None;
            }
        };
        Some(IdentityProof { method, subject: subject?, secret: secret?, scope: scope? })
    }

    /// Returns the default authentication type. Passwords take precedence, as in CDI.
    fn usual_kind(&self) -> &'static str {
        let has = |key| self.read_text(key).is_some();
        match () {
            () if has("password") => "password",
            () if has("applicationCredentialSecret") => "applicationcredential",
            () if has("token") => "token",
            () => "password",
        }
    }

    /// Reads the user, as Keystone's JSON names it.
    fn read_user(&mut self) -> Option<Value> {
        if let Some(id) = self.read_text("userID") {
            return Some(json!({"id": id}));
        }
        let Some(name) = self.read_text("username") else {
            self.reject_key("username", "is not set or empty");
            return None;
        };
        Some(json!({"name": name, "domain": self.domain_of("user")?}))
    }

    fn read_credential(&mut self) -> Option<Value> {
        if let Some(id) = self.read_text("applicationCredentialID") {
            return Some(json!({"id": id}));
        }
        let Some(name) = self.read_text("applicationCredentialName") else {
            self.reject_key("applicationCredentialID", "is not set or empty");
            return None;
        };
        Some(json!({"name": name, "user": self.read_user()?}))
    }

    /// Reads the scope, if one is given. The outer `None` means that a value was rejected.
    fn read_scope(&mut self) -> Option<Option<Value>> {
        Some(if let Some(id) = self.read_text("projectID") {
            Some(json!({"project": {"id": id}}))
        } else if let Some(name) = self.read_text("projectName") {
            Some(json!({"project": {"name": name, "domain": self.domain_of("project")?}}))
        } else if self.read_text("systemScope").is_some() {
            // No other part of the system can be named.
            Some(json!({"system": {"all": true}}))
        } else {
            self.read_domain("domain").map(|domain| json!({"domain": domain}))
        })
    }

    /// Returns the domain of names of `owner`, which are unique only within it: its own domain, the
    /// domain for all names, or the default.
    fn domain_of(&mut self, owner: &str) -> Option<Value> {
        let own = format!("{owner}Domain");
        let domain = self
            .read_domain(&own)
            .or_else(|| self.read_domain("domain"))
            .or_else(|| Some(json!({"id": self.read_text("defaultDomain")?})));
        if domain.is_none() {
            let reason = format!(
                "is not set or empty: the name of a {owner} is unique only within a domain"
            );
            self.reject_key(&format!("{own}Name"), &reason);
        }
        domain
    }

    fn read_domain(&self, prefix: &str) -> Option<Value> {
        let id = self.read_text(&format!("{prefix}ID")).map(|id| json!({"id": id}));
        id.or_else(|| Some(json!({"name": self.read_text(&format!("{prefix}Name"))?})))
    }

    fn read_interface(&mut self) -> Option<&'static str> {
        let text = self.read_text("availability").unwrap_or_else(|| "public".to_owned());
        // Older interface names end in `URL`.
        let name = text.strip_suffix("URL").unwrap_or(&text);
        let known = INTERFACES.into_iter().find(|known| *known == name);
        if known.is_none() {
            self.reject_key("availability", "is not public, internal or admin");
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(names: NameStyle, pairs: &[(&str, &str)]) -> Result<GlanceAccess, String> {
        let pairs = pairs.iter().map(|(key, value)| (names.key_name(key), (*value).to_owned()));
        let values: HashMap<String, String> = pairs.collect();
        let mut reader = EnvReader::new(&values);
        let access = GlanceAccess::from_env(&mut reader, names);
        let finished = reader.into_result().map_err(|errors| errors.to_string());
        finished.map(|()| access.unwrap())
    }

    /// Returns the request for a token, without its outermost level.
    fn asked(pairs: &[(&str, &str)]) -> String {
        let access = read(NameStyle::Secret, pairs).unwrap();
        match access.token_request() {
            Some(document) => document["auth"].to_string(),
            None => format!("about {}", access.named_secret().1.expose()),
        }
    }

    #[test]
    fn variables_have_the_names_of_the_openstack_client() {
        for (key, name) in [
            ("username", "OS_USERNAME"),
            ("userID", "OS_USER_ID"),
            ("projectDomainName", "OS_PROJECT_DOMAIN_NAME"),
            ("applicationCredentialID", "OS_APPLICATION_CREDENTIAL_ID"),
            ("availability", "OS_INTERFACE"),
            ("regionName", "OS_REGION_NAME"),
        ] {
            assert_eq!(NameStyle::OpenStack.key_name(key), name);
            assert_eq!(NameStyle::Secret.key_name(key), key);
        }
    }

    #[test]
    fn a_password_needs_a_user_and_its_domain() {
        let user = |domain: &str| {
            format!(
                r#"{{"identity":{{"methods":["password"],"password":{{"user":{{"domain":{domain},"name":"u","password":"p"}}}}}}}}"#
            )
        };
        let of = |more: &[(&str, &str)]| {
            asked(&[&[("username", "u"), ("password", "p")], more].concat())
        };
        assert_eq!(of(&[("userDomainName", "d")]), user(r#"{"name":"d"}"#));
        assert_eq!(of(&[("userDomainName", "d"), ("userDomainID", "i")]), user(r#"{"id":"i"}"#));
        assert_eq!(of(&[("defaultDomain", "d")]), user(r#"{"id":"d"}"#));
        let in_domain = of(&[("domainName", "d")]);
        assert!(in_domain.contains(r#""domain":{"name":"d"},"name":"u""#), "{in_domain}");
        assert!(in_domain.contains(r#""scope":{"domain":{"name":"d"}}"#), "{in_domain}");
        let by_id = asked(&[("userID", "i"), ("username", "u"), ("password", "p")]);
        assert!(by_id.contains(r#"{"user":{"id":"i","password":"p"}}"#), "{by_id}");
    }

    #[test]
    fn the_scope_is_a_project_or_the_system_or_a_domain() {
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
        assert_eq!(of(&[("projectID", "i"), ("projectName", "p")]), r#"{"project":{"id":"i"}}}"#);
        assert_eq!(of(&[("systemScope", "all"), ("domainID", "d")]), r#"{"system":{"all":true}}}"#);
        assert_eq!(of(&[("domainID", "d")]), r#"{"domain":{"id":"d"}}}"#);
        assert_eq!(of(&[("defaultDomain", "d")]), "none");
    }

    #[test]
    fn tokens_and_application_credentials_are_accepted() {
        let token = [("authType", "token"), ("token", "t")];
        assert_eq!(asked(&token), "about t");
        let rescoped = asked(&[&token[..], &[("projectID", "i")]].concat());
        let identity = r#"{"identity":{"methods":["token"],"token":{"id":"t"}},"scope":{"project":{"id":"i"}}}"#;
        assert_eq!(rescoped, identity);
        let secret = [("authType", "applicationcredential"), ("applicationCredentialSecret", "s")];
        let of = |more: &[(&str, &str)]| asked(&[&secret[..], more].concat());
        let credential = |inner: &str| {
            format!(
                r#"{{"identity":{{"application_credential":{inner},"methods":["application_credential"]}}}}"#
            )
        };
        // The scope of an application credential is fixed when it is created.
        assert_eq!(
            of(&[("applicationCredentialID", "i"), ("projectID", "p")]),
            credential(r#"{"id":"i","secret":"s"}"#)
        );
        assert_eq!(
            of(&[("applicationCredentialName", "n"), ("username", "u"), ("domainName", "d")]),
            credential(r#"{"name":"n","secret":"s","user":{"domain":{"name":"d"},"name":"u"}}"#)
        );
    }

    #[test]
    fn errors_name_the_variable_but_no_value() {
        for (pairs, sentence) in [
            ("authType=hidden", "authType: unsupported authentication type: "),
            ("userID=hidden", "password: is not set or empty"),
            ("password=hidden", "username: is not set or empty"),
            ("username=hidden password=hidden", "userDomainName: is not set"),
            ("userID=hidden password=hidden projectName=hidden", "projectDomainName: is not set"),
            ("authType=token", "token: is not set or empty"),
            (
                "authType=applicationcredential",
                "applicationCredentialID: is not set or empty; \
                 environment variable applicationCredentialSecret: is not set or empty",
            ),
            (
                "userID=u password=hidden availability=hidden",
                "availability: is not public, internal or admin",
            ),
        ] {
            let pairs: Vec<_> =
                pairs.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
            let error = read(NameStyle::Secret, &pairs).unwrap_err();
            let error = error.strip_prefix("environment variable ").unwrap();
            assert!(error.starts_with(sentence) && !error.contains("hidden"), "{error}");
        }
        let access =
            read(NameStyle::OpenStack, &[("userID", "u"), ("password", "hidden")]).unwrap();
        assert!(!format!("{access:?}").contains("hidden"), "{access:?}");
    }
}
