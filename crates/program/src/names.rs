//! Validates the names of Kubernetes objects (RFC 1123), because they become part of API paths.

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
            "", "-a", "a-", "A", "a_b", "a/b", "a:1", "a@b", "a b", "a\u{e4}", "a.b.", ".a", "a..b", ".",
            "..", "a?b", "a%2fb",
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
}
