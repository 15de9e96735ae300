//! Answers requests with the disk, with a range of it, or with the container's environment.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::contents;
use crate::disk::ServedDisk;
use crate::range::RequestedRange;

/// The body of a response.
pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// The disk and the environment that are served.
pub(crate) struct ServedContent {
    disk: ServedDisk,
    /// The JSON document at [`INFO`].
    info: Bytes,
    modified: HeaderValue,
}

/// The path at which the importer reads the container's environment.
const INFO: &str = "/info";

impl ServedContent {
    /// Creates the content. `disk` is served under its name, and the variables in `environment`
    /// are served at [`INFO`].
    pub(crate) fn new(disk: ServedDisk, environment: &[(String, String)]) -> Self {
        let variables: Vec<String> =
            environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let modified = httpdate::fmt_http_date(disk.modified);
        Self {
            disk,
            info: json!({ "env": variables }).to_string().into(),
            modified: HeaderValue::try_from(modified)
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        }
    }

    /// Returns the response to a request. The body of the request is not read.
    pub(crate) fn answer_request<B>(&self, request: &Request<B>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text_response(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD are served here\n",
            );
            let allowed = HeaderValue::from_static("GET, HEAD");
            answer.headers_mut().insert(header::ALLOW, allowed);
            return answer;
        }
        let path = request.uri().path();
        if path == INFO {
            return typed_response(StatusCode::OK, "application/json", self.info.clone());
        }
        // Only one name is served, so no path can lead to another file.
        let named =
            path.strip_prefix('/').map(|name| percent_decode_str(name).collect::<Vec<u8>>());
        if named.as_ref() == Some(&self.disk.name) {
            self.disk_response(request.method(), request.headers())
        } else {
            text_response(StatusCode::NOT_FOUND, "404 page not found\n")
        }
    }

    fn disk_response(&self, method: &Method, headers: &HeaderMap) -> Response<Body> {
        let length = self.disk.length;
        let (status, range, content_range) = match self.requested_range(headers) {
            RequestedRange::Whole => (StatusCode::OK, 0..length, None),
            RequestedRange::Part(range) => {
                let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                (StatusCode::PARTIAL_CONTENT, range, Some(text))
            }
            RequestedRange::Unsatisfiable => {
                let text = format!("bytes */{length}");
                (StatusCode::RANGE_NOT_SATISFIABLE, 0..0, Some(text))
            }
        };
        // A HEAD request gets the same headers as a GET request. They include the length, by which
        // importers decide how to read.
        let size = range.end - range.start;
        let body = if *method == Method::HEAD || range.is_empty() {
            empty_body()
        } else {
            match contents::stream_range(Arc::clone(&self.disk.file), range) {
                Ok(contents) => BodyExt::boxed(StreamBody::new(contents)),
                Err(error) => {
                    tracing::error!("{error}");
                    return text_response(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
                }
            }
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::CONTENT_LENGTH, size.into());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::ETAG, self.disk.tag.clone());
        headers.insert(header::LAST_MODIFIED, self.modified.clone());
        if let Some(Ok(value)) = content_range.map(HeaderValue::try_from) {
            headers.insert(header::CONTENT_RANGE, value);
        }
        answer
    }

    /// Returns the range to send. A range is valid only for the file identified by `If-Range`. If
    /// that is a different file, the client needs the whole content (RFC 9110 §13.1.5).
    fn requested_range(&self, headers: &HeaderMap) -> RequestedRange {
        let is_meant = headers
            .get(header::IF_RANGE)
            .is_none_or(|validator| *validator == self.disk.tag || *validator == self.modified);
        let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        match range.filter(|_| is_meant) {
            Some(range) => RequestedRange::from_header(range, self.disk.length),
            None => RequestedRange::Whole,
        }
    }
}

fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    typed_response(status, "text/plain; charset=utf-8", text.into())
}

fn typed_response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut answer = Response::new(BodyExt::boxed(Full::new(body).map_err(|never| match never {})));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

fn empty_body() -> Body {
    BodyExt::boxed(Full::default().map_err(|never| match never {}))
}
