//! Protection of secrets on connections without TLS, which others can read.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use stream::error::SourceError;
use url::{Origin, Url};

use super::ImportPolicy;
use crate::address::url_origin;
use crate::error::invalid_error;
use crate::proxy::is_local;

/// Rule for a secret that would be sent over plain HTTP.
#[derive(Debug, Clone)]
pub(super) enum CleartextRule {
    /// The secret is not sent, and the request fails.
    Refused,
    /// The secret is sent, and a warning is logged once for each server.
    Warned(Arc<Mutex<HashSet<Origin>>>),
}

impl CleartextRule {
    pub(super) fn new_warned() -> Self {
        Self::Warned(Arc::default())
    }
}

impl ImportPolicy {
    /// Checks whether `secret`, a noun for the message, may be sent to `url`. This is allowed over
    /// TLS, and to the local machine, with no proxy and no network in between.
    pub fn check_secret_target(&self, secret: &str, url: &Url) -> Result<(), SourceError> {
        if url.scheme() == "https" || url.host().is_some_and(|host| is_local(&host)) {
            return Ok(());
        }
        let server = url_origin(url);
        match &self.cleartext {
            CleartextRule::Refused => Err(invalid_error(format!(
                "{secret} would be sent to {server} without TLS, where anybody on the path could read it: use https, or allow it with \
                 --cleartext-secrets"
            ))),
            CleartextRule::Warned(warned) => {
                // Warn once for each server, because a download sends thousands of requests.
                if warned.lock().insert(url.origin()) {
                    tracing::warn!(
                        "{secret} is sent to {server} without TLS: anybody on the path can read it"
                    );
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::ExtraPermissions;
    use super::*;

    fn reveals(policy: &ImportPolicy, url: &str) -> Result<(), String> {
        let result = policy.check_secret_target("the password", &Url::parse(url).unwrap());
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn secrets_are_sent_only_over_tls_or_to_this_machine() {
        let env = HashMap::<String, String>::new();
        let strict = ImportPolicy::command_line(&env, true, &ExtraPermissions::default());
        let granted = ExtraPermissions { cleartext_secrets: true, ..ExtraPermissions::default() };
        let lax =
            [ImportPolicy::for_pod(&env, true), ImportPolicy::command_line(&env, true, &granted)];
        for url in ["https://h/", "http://localhost:8/", "http://127.1.2.3/", "http://[::1]/"] {
            assert_eq!(reveals(&strict, url), Ok(()), "{url}");
        }
        for url in ["http://h:8080/path?secret", "http://10.0.0.1/", "http://localhost.example/"] {
            let error = reveals(&strict, url).unwrap_err();
            assert!(error.contains("--cleartext-secrets") && !error.contains("?secret"), "{error}");
            for policy in &lax {
                assert_eq!(reveals(policy, url), Ok(()), "{url}");
            }
        }
        let error = reveals(&strict, "http://h:8080/path").unwrap_err();
        assert!(
            error.starts_with("the password would be sent to http://h:8080 without TLS"),
            "{error}"
        );
    }
}
