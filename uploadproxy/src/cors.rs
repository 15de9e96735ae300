//! Cross-origin requests (WHATWG Fetch, "CORS protocol"). Any page may send requests; browser
//! credentials such as cookies are never used.
//!
//! The token is sent in a header that a page has to set itself, so a malicious page cannot make a
//! browser send it.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};

/// Methods that a page may use in its requests.
const METHODS: [Method; 6] =
    [Method::HEAD, Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Headers about resumable uploads that pages from other origins may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Location, Upload-Offset, Upload-Length, Upload-Defer-Length, Tus-Resumable",
);

/// The CORS headers of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CorsHeaders {
    has_origin: bool,
    /// True if the response is about a resumable upload. A page may then read the headers in
    /// [`EXPOSED`].
    pub(crate) exposes_upload: bool,
}

impl CorsHeaders {
    /// Determines the CORS headers for the response to `request`.
    pub(crate) fn from_request<B>(request: &Request<B>) -> Self {
        let method = request.method();
        let allowed = METHODS.contains(method) || *method == Method::OPTIONS;
        Self {
            has_origin: allowed && request.headers().contains_key(header::ORIGIN),
            exposes_upload: false,
        }
    }

    /// Adds the CORS headers to a response.
    pub(crate) fn set_headers<B>(self, response: &mut Response<B>) {
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if self.has_origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
            if self.exposes_upload {
                headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            }
        }
    }
}

/// Returns the response to a preflight request, in which a browser asks whether a page may send
/// its request. Returns `None` if `request` is not a preflight request.
pub(crate) fn preflight_reply<A, B: Default>(request: &Request<A>) -> Option<Response<B>> {
    let asked = request.headers();
    let method = asked.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    if *request.method() != Method::OPTIONS {
        return None;
    }
    let mut response = Response::new(B::default());
    // The status is always 200 (contract §3.4). Browsers reject a request that is not allowed
    // because headers are missing.
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    for name in ["Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"] {
        headers.append(header::VARY, HeaderValue::from_static(name));
    }
    let method = method.to_str().unwrap_or_default().to_ascii_uppercase();
    let method = Method::from_bytes(method.as_bytes()).ok();
    let method = method.filter(|method| METHODS.contains(method) || *method == Method::OPTIONS);
    if let Some(method) = method.filter(|_| asked.contains_key(header::ORIGIN))
        && let Ok(method) = HeaderValue::from_str(method.as_str())
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method);
        if let Some(names) = requested_headers(asked) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
    }
    Some(response)
}

/// Returns the headers that the page wants to send, capitalized as in Go and separated by commas.
fn requested_headers(asked: &HeaderMap) -> Option<HeaderValue> {
    let text = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS)?.to_str().ok()?;
    let names: Vec<String> = text
        .split([',', ' '])
        .filter(|name| HeaderName::from_bytes(name.as_bytes()).is_ok())
        .map(canonical_name)
        .collect();
    if names.is_empty() {
        return None;
    }
    HeaderValue::from_str(&names.join(", ")).ok()
}

/// Capitalizes a header name, for example `content-type` to `Content-Type`.
fn canonical_name(name: &str) -> String {
    let parts = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first
            .into_iter()
            .chain(letters.map(|letter| letter.to_ascii_lowercase()))
            .collect::<String>()
    });
    parts.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().method(method);
        let builder =
            headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        builder.body(()).unwrap()
    }

    fn values<'r>(response: &'r Response<()>, name: &str) -> Vec<&'r str> {
        let values = response.headers().get_all(name).iter();
        values.map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn every_answer_has_vary_and_usual_methods_allow_any_origin() {
        for (method, origin, open) in [
            ("POST", true, true),
            ("OPTIONS", true, true),
            ("TRACE", true, false),
            ("GET", false, false),
        ] {
            let headers: &[(&str, &str)] = if origin { &[("origin", "x")] } else { &[] };
            let marks = CorsHeaders {
                exposes_upload: true,
                ..CorsHeaders::from_request(&request(method, headers))
            };
            let mut response = Response::new(());
            marks.set_headers(&mut response);
            assert_eq!(values(&response, "vary"), ["Origin"]);
            assert_eq!(values(&response, "access-control-allow-origin").len(), usize::from(open));
            assert_eq!(values(&response, "access-control-expose-headers").len(), usize::from(open));
        }
    }
}
