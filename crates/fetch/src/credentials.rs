//! User name and password of a source.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

/// User and password for basic authentication, or an access key and its secret key.
#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    user: String,
    password: String,
}

impl BasicCredentials {
    /// Creates credentials from the environment or from flags; `None` unless both parts are
    /// present.
    pub fn new(user: &str, password: &str) -> Option<Self> {
        let complete = !user.is_empty() && !password.is_empty();
        complete.then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }

    /// Returns the user, or the access key.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the password, or the secret key.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Returns the percent-decoded user-info of a URL. A user without a password is accepted here.
    pub(crate) fn of_url(url: &Url) -> Option<Self> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let present = !url.username().is_empty() || url.password().is_some();
        present.then(|| Self {
            user: decoded(url.username()),
            password: decoded(url.password().unwrap_or_default()),
        })
    }
}

impl fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_need_both_parts() {
        assert!(BasicCredentials::new("user", "").is_none());
        assert!(BasicCredentials::new("", "password").is_none());
        assert!(BasicCredentials::new("user", "password").is_some());
    }

    #[test]
    fn user_info_is_decoded() {
        let url = Url::parse("http://a%40b:p%3Aw@host/").unwrap();
        assert_eq!(BasicCredentials::of_url(&url), BasicCredentials::new("a@b", "p:w"));
        assert_eq!(BasicCredentials::of_url(&Url::parse("http://host/").unwrap()), None);
    }
}
