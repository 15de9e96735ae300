//! Decides how an origin responds to a request, without any I/O.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::script::{Framing, NOW, Object, Ranges, Script};
use crate::serving::Fault;
use crate::wire;
use crate::wire::Request;

/// A response that is ready to be written.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// Offset of the first byte of `body` in the object.
    pub(super) offset: u64,
    pub(super) body: Bytes,
    pub(super) chunked: bool,
    pub(super) close: bool,
}

impl Answer {
    fn empty(status: u16) -> Self {
        Self {
            status,
            headers: vec![("Content-Length".into(), "0".into())],
            offset: 0,
            body: Bytes::new(),
            chunked: false,
            close: false,
        }
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// Returns the response if the request is refused or redirected before the object is used. `seen`
/// is the number of earlier requests for this path.
pub(super) fn refusal(script: &Script, request: &Request, seen: usize) -> Option<Answer> {
    let path = request.path();
    if let Some(locations) = script.redirects.get(path)
        && let Some(location) = locations.get(seen).or(locations.last())
    {
        return Some(Answer::empty(302).with("Location", location));
    }
    if let Some((limit, status)) = script.expires.get(path)
        && seen >= *limit
    {
        return Some(Answer::empty(*status));
    }
    if let Some(secret) = &script.basic_auth {
        let expected = format!("Basic {}", STANDARD.encode(secret));
        if request.header("authorization") != Some(&expected) {
            return Some(Answer::empty(401).with("WWW-Authenticate", "Basic realm=\"test\""));
        }
    }
    if let Some((name, value)) = &script.required_header
        && request.header(name) != Some(value)
    {
        return Some(Answer::empty(403));
    }
    if let (Some(status), "HEAD") = (script.head_status, request.method.as_str()) {
        return Some(Answer::empty(status));
    }
    None
}

/// Returns the response to the `nth` GET that reaches the object.
pub(super) fn answer(script: &Script, request: &Request, nth: usize, fault: &Fault) -> Answer {
    if let Fault::Status(status, retry_after) = fault {
        let answer = Answer::empty(*status);
        return match retry_after {
            Some(value) => answer.with("Retry-After", value),
            None => answer,
        };
    }
    let object = match &script.replaced {
        Some((from, other)) if nth >= *from => other,
        _ => &script.object,
    };
    let is_ignored = script.ignored_ranges.is_some_and(|every| nth % every == every - 1);
    let range = wanted_range(script, request, object).filter(|_| !is_ignored).map(|range| {
        let most = script.most_part_bytes.unwrap_or(u64::MAX);
        range.start..range.end.min(range.start.saturating_add(most))
    });
    let range = range.or(script.is_always_part.then_some(0..object.len()));
    match wire::partial(range, object.body.len()) {
        (_, _, None) => whole(script, object),
        (206, range, Some((name, value))) => {
            let value = script.content_range.clone().unwrap_or(value);
            part(script, object, range).with(&name, value)
        }
        (status, _, Some((name, value))) => Answer::empty(status).with(&name, value),
    }
}

fn wanted_range(script: &Script, request: &Request, object: &Object) -> Option<Range<u64>> {
    if !matches!(script.ranges, Ranges::Served | Ranges::Silent) {
        return None;
    }
    // RFC 9110 §13.1.5: if the validator does not match, the range is ignored.
    if let Some(validator) = request.header("if-range")
        && !script.ignores_conditions
        && Some(validator) != object.etag.as_deref()
        && Some(validator) != object.last_modified.as_deref()
    {
        return None;
    }
    request.range(object.len())
}

fn whole(script: &Script, object: &Object) -> Answer {
    let mut headers = common_headers(script, object);
    match script.framing {
        Framing::Length => headers.push(("Content-Length".into(), object.len().to_string())),
        Framing::Lie(length) => headers.push(("Content-Length".into(), length.to_string())),
        Framing::Chunked => headers.push(("Transfer-Encoding".into(), "chunked".into())),
        Framing::UntilClose => headers.push(("Connection".into(), "close".into())),
    }
    Answer {
        status: 200,
        headers,
        offset: 0,
        body: object.body.clone(),
        chunked: script.framing == Framing::Chunked,
        close: matches!(script.framing, Framing::UntilClose | Framing::Lie(_)),
    }
}

fn part(script: &Script, object: &Object, range: Range<usize>) -> Answer {
    let mut headers = common_headers(script, object);
    let length = script.part_length.unwrap_or(range.len() as u64);
    headers.push(("Content-Length".into(), length.to_string()));
    Answer {
        status: 206,
        headers,
        offset: range.start as u64,
        body: object.body.slice(range),
        chunked: false,
        close: script.part_length.is_some(),
    }
}

fn common_headers(script: &Script, object: &Object) -> Vec<(String, String)> {
    let now = wire::now();
    let mut headers = vec![("Date".to_owned(), now.clone())];
    let last_modified = object.last_modified.as_deref();
    let accept_ranges = match script.ranges {
        Ranges::Served | Ranges::Claimed => Some("bytes"),
        Ranges::Refused => Some("none"),
        Ranges::Silent | Ranges::Unknown => None,
    };
    let optional = [
        ("Accept-Ranges", accept_ranges),
        ("ETag", object.etag.as_deref()),
        ("Last-Modified", last_modified.map(|date| if date == NOW { &now } else { date })),
    ];
    for (name, value) in optional {
        headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    headers.extend(script.headers.iter().cloned());
    headers
}
