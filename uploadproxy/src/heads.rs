//! Finds requests that must be rejected although hyper accepts their heads.

use http::{Method, Request, Version, header};

/// Returns true if a request may be answered: it does not ask for a tunnel, and names exactly one
/// valid host. RFC 9112 §3.2 requires status 400 for any other host. Only HTTP/1.0 allows requests
/// without a host.
pub(crate) fn is_proper<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let is_named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.as_bytes().iter().all(is_of_host),
        (None, _) => request.version() == Version::HTTP_10,
        _ => false,
    };
    is_named && request.method() != Method::CONNECT
}

/// Returns true for characters that are allowed in a host and a port (RFC 3986 §3.2.2).
fn is_of_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, version: Version, hosts: &[&str]) -> bool {
        let mut request = Request::builder().method(method).version(version);
        for host in hosts {
            request = request.header("host", *host);
        }
        is_proper(&request.body(()).unwrap())
    }

    #[test]
    fn a_request_must_name_exactly_one_valid_host() {
        for host in ["uploads.example:8443", "[::1]:80", "10.1.2.3", ""] {
            assert!(check("POST", Version::HTTP_11, &[host]), "{host}");
        }
        for hosts in [&[][..], &["a", "b"], &["a", "a"], &["a/b"], &["a?b"], &["a@b"], &["a b"]] {
            assert!(!check("POST", Version::HTTP_11, hosts), "{hosts:?}");
        }
        assert!(check("POST", Version::HTTP_10, &[]));
        assert!(!check("CONNECT", Version::HTTP_11, &["a"]));
    }
}
