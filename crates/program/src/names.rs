//! Validates names of Kubernetes objects (RFC 1123), which become part of API paths, and the keys
//! and values of their labels.

/// Maximum length of a DNS label in characters (RFC 1123 §2.1).
pub const MAX_LABEL: usize = 63;

/// Maximum length of a DNS name in characters (RFC 1123 §2.1).
pub const MAX_SUBDOMAIN: usize = 253;

/// True if `text` is a valid name of a namespace (RFC 1123 label).
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_part(text)
}

/// True if `text` is a valid object name (RFC 1123 subdomain). The labels in it are not limited in
/// length.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_part)
}

/// True if `text` is a valid key of an object's label: a name, or `DOMAIN/NAME`. The API server
/// refuses an update with any other key (`IsQualifiedName` in `k8s.io/apimachinery`).
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// True if `text` is a valid value of an object's label: empty, or like the name in a key
/// (`IsValidLabelValue` in `k8s.io/apimachinery`).
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

fn is_label_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let has_bare_end = text.starts_with(['-', '_', '.']) || text.ends_with(['-', '_', '.']);
    (1..=MAX_LABEL).contains(&text.len()) && text.bytes().all(inner) && !has_bare_end
}

/// True if `text` is valid between two dots of a name. Its length is not checked.
fn is_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_dns_names_are_valid() {
        for name in [
            "", "-a", "a-", "A", "a_b", "a/b", "a:1", "a@b", "a b", "a\u{e4}", "a.b.", ".a",
            "a..b", ".", "..", "a?b", "a%2fb",
        ] {
            assert!(!is_subdomain(name) && !is_label(name), "{name}");
        }
        for name in ["fedora", "fedora-40.image-cron", "0"] {
            assert!(is_subdomain(name), "{name}");
        }
        assert!(is_subdomain("a.b-c.9") && !is_label("a.b"));
        assert!(is_label(&"a".repeat(63)) && !is_label(&"a".repeat(64)));
        assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn labels_are_judged_as_the_api_server_judges_them() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for name in ["a", "A", "0", "a-b_c.D", "1.2.3", &longest] {
            assert!(is_label_key(name) && is_label_value(name), "{name}");
            assert!(is_label_key(&format!("a.kubevirt.io/{name}")), "{name}");
        }
        for name in
            ["-a", "a-", "_a", "a_", ".a", "a.", "-", "a=B", "a b", "a:b", "a\n", "\u{e4}", &longer]
        {
            assert!(!is_label_key(name) && !is_label_value(name), "{name:?}");
            assert!(!is_label_key(&format!("a.kubevirt.io/{name}")), "{name:?}");
        }
        assert!(is_label_value("") && !is_label_value("a/b"));
        let (domain, longer) = ("a".repeat(253), "a".repeat(254));
        assert!(is_label_key(&format!("{domain}/a")));
        for key in
            ["", "a/", "/a", "A.io/a", "a_b.io/a", "bad-.io/a", "a/b/c", &format!("{longer}/a")]
        {
            assert!(!is_label_key(key), "{key:?}");
        }
    }
}
