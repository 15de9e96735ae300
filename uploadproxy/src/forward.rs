//! Selects the parts of a message that are passed on. These are all parts except headers that
//! concern only one of the two connections (RFC 9110 §7.6.1) and data that an upload server does
//! not need.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, Uri, Version, request};
use program::cdi::{CONTENT_HEADER, ENCODING_HEADER};

use crate::volumes::UpstreamAddress;

/// Headers that concern only one connection.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers that could make an upload server treat a client's body as a clone. Only cloners may
/// send clones.
const CLONE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static(CONTENT_HEADER), HeaderName::from_static(ENCODING_HEADER)];

/// Builds the head of the request to the upload server from `path` and the client's headers.
pub(crate) fn upstream_request(
    from: request::Parts,
    path: Uri,
    client: IpAddr,
    place: &UpstreamAddress,
) -> Request<()> {
    let mut headers = from.headers;
    let takes_trailers = headers.get_all(header::TE).iter().any(|value| {
        value.to_str().is_ok_and(|text| text.split(',').any(|part| part.trim() == "trailers"))
    });
    strip_hop_by_hop(&mut headers);
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        // A body with a length cannot have trailers. The trailers of a chunked body are passed on
        // together with the header that announces them.
        headers.remove(header::TRAILER);
    }
    // The upload server identifies the proxy by its certificate. A token sent there could only
    // leak.
    headers.remove(header::AUTHORIZATION);
    for name in CLONE_HEADERS {
        headers.remove(name);
    }
    forwarded_for(&mut headers, client);
    if !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(&format!("{}:{}", place.host, place.port))
    {
        headers.insert(header::HOST, host);
    }
    let mut request = Request::new(());
    *request.method_mut() = from.method;
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = path;
    *request.headers_mut() = headers;
    request
}

/// Prepares the head of the response to the client.
pub(crate) fn client_response<B>(response: &mut Response<B>) {
    let headers = response.headers_mut();
    strip_hop_by_hop(headers);
    headers.remove(header::TRAILER);
    // The proxy itself decides which pages may read its responses.
    let cors: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in cors {
        headers.remove(name);
    }
    *response.version_mut() = Version::HTTP_11;
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        // A client must not be able to remove the headers that frame the body or name the host.
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Appends the client's address to `X-Forwarded-For`, as is usual for proxies.
fn forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let client = client.to_canonical().to_string();
    let all: Vec<&str> = before.chain([client.as_str()]).collect();
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_host_and_the_ipv4_address_of_the_client_are_added() {
        let from = Request::post("https://elsewhere/v1beta1/upload?token=secret");
        let (parts, ()) = from.body(()).unwrap().into_parts();
        let host = "cdi-upload-disk.ns.svc".to_owned();
        let place = UpstreamAddress { host, port: 8443, older_port: None };
        let client = "::ffff:10.1.2.3".parse().unwrap();
        let path = Uri::from_static("/v1beta1/upload");
        let request = upstream_request(parts, path, client, &place);
        assert_eq!(request.uri(), "/v1beta1/upload", "no authority, no query");
        assert_eq!(request.headers()[header::HOST], "cdi-upload-disk.ns.svc:8443");
        assert_eq!(request.headers()[FORWARDED_FOR], "10.1.2.3");
    }
}
