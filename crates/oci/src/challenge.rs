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

/// A challenge of any scheme, with the parameters that count.
#[derive(Default)]
struct OfferedScheme {
    name: String,
    realm: Option<String>,
    service: Option<String>,
}

/// Chooses the best of the schemes that a response offers. A token is preferred; it can be
/// obtained with a password.
pub fn choose_challenge(headers: &HeaderMap) -> Option<AuthChallenge> {
    let values = headers.get_all(header::WWW_AUTHENTICATE).iter();
    let offers: Vec<_> =
        values.filter_map(|value| value.to_str().ok()).flat_map(parse_challenges).collect();
    let has_basic = offers.iter().any(|offer| offer.name == "basic");
    let mut bearers = offers.into_iter().filter(|offer| offer.name == "bearer");
    let bearer = bearers.find_map(|OfferedScheme { realm, service, .. }| {
        Some(AuthChallenge::Bearer { realm: realm?, service })
    });
    bearer.or(has_basic.then_some(AuthChallenge::Basic))
}

/// Parses a header, which may hold several challenges. Each has a scheme and parameters, all
/// separated by commas.
fn parse_challenges(text: &str) -> Vec<OfferedScheme> {
    let mut found: Vec<OfferedScheme> = Vec::new();
    for item in split_quoted(text) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        // The text before the first parameter of a challenge is its scheme.
        let (scheme, parameter) = match name.trim().split_once(char::is_whitespace) {
            Some((scheme, parameter)) => (Some(scheme), parameter.trim()),
            None if !item.contains('=') => (Some(name.trim()), ""),
            None => (None, name.trim()),
        };
        if let Some(scheme) = scheme {
            let name = scheme.to_ascii_lowercase();
            found.push(OfferedScheme { name, ..OfferedScheme::default() });
        }
        let Some(offer) = found.last_mut() else { continue };
        match parameter.to_ascii_lowercase().as_str() {
            "realm" => offer.realm = Some(unquote_value(value.trim())),
            "service" => offer.service = Some(unquote_value(value.trim())),
            _ => {}
        }
    }
    found
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
