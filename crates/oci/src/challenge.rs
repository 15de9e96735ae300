//! Authentication challenges of registries: `WWW-Authenticate` (RFC 9110 §11.6.1).

use http::{HeaderMap, header};

/// An authentication scheme that registries use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthChallenge {
    /// User and password (RFC 7617).
    Basic,
    /// A token from a token service (distribution specification, "Token Authentication").
    Bearer {
        /// The URL of the token service.
        realm: String,
        /// Name of the registry at the token service.
        service: Option<String>,
    },
}

/// Chooses the best of the schemes that a response offers. A token is preferred; it can be
/// obtained with a password.
pub fn choose_challenge(headers: &HeaderMap) -> Option<AuthChallenge> {
    let offers: Vec<AuthChallenge> = headers
        .get_all(header::WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(parse_challenges)
        .collect();
    let bearer = offers.iter().find(|offer| matches!(offer, AuthChallenge::Bearer { .. }));
    bearer.or(offers.first()).cloned()
}

/// Parses a header, which may hold several challenges. Each has a scheme and parameters, all
/// separated by commas.
fn parse_challenges(text: &str) -> Vec<AuthChallenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for item in split_quoted(text) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        // The text before the first parameter of a challenge is its scheme.
        let parameter = match name.trim().split_once(char::is_whitespace) {
            Some((scheme, parameter)) => {
                found.push((scheme.to_ascii_lowercase(), Vec::new()));
                parameter.trim()
            }
            None if !item.contains('=') => {
                found.push((name.trim().to_ascii_lowercase(), Vec::new()));
                continue;
            }
            None => name.trim(),
        };
        if let Some((_, parameters)) = found.last_mut() {
            parameters.push((parameter.to_ascii_lowercase(), unquote_value(value.trim())));
        }
    }
    found.into_iter().filter_map(|(scheme, parameters)| parse_scheme(&scheme, parameters)).collect()
}

fn parse_scheme(scheme: &str, parameters: Vec<(String, String)>) -> Option<AuthChallenge> {
    match scheme {
        "basic" => Some(AuthChallenge::Basic),
        "bearer" => {
            let (mut realm, mut service) = (None, None);
            for (name, value) in parameters {
                match name.as_str() {
                    "realm" => realm = Some(value),
                    "service" => service = Some(value),
                    _ => {}
                }
            }
            realm.map(|realm| AuthChallenge::Bearer { realm, service })
        }
        _ => None,
    }
}

/// Splits text at the commas that are not within quotes.
fn split_quoted(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let outside = move |char: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match char {
            '\\' => is_escaped = is_quoted && !was_escaped,
            '"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        char == ',' && !is_quoted
    };
    text.split(outside).map(str::trim).filter(|item| !item.is_empty())
}

fn unquote_value(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        text.extend(if char == '\\' { chars.next() } else { Some(char) });
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Option<AuthChallenge> {
        Some(AuthChallenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
    }

    #[test]
    fn challenges_of_real_registries_are_parsed() {
        for (text, expected) in [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io""#,
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (
                r#"bearer  realm="https://a/t?x=1,2" , scope="repository:a/b:pull,push", error="invalid_token""#,
                bearer("https://a/t?x=1,2", None),
            ),
            (r#"Basic realm="Registry Realm""#, Some(AuthChallenge::Basic)),
            ("Basic", Some(AuthChallenge::Basic)),
            (
                r#"Basic realm="a", Negotiate, Bearer realm="b \" c", service=d"#,
                bearer("b \" c", Some("d")),
            ),
            (r#"Bearer service="d""#, None),
            ("Negotiate abc==", None),
            ("", None),
            ("=,\"", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(text));
            assert_eq!(choose_challenge(&headers), expected, "{text}");
        }
        assert_eq!(choose_challenge(&HeaderMap::new()), None);
    }
}
