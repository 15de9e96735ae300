//! A transport failure in plain words.

use std::error::Error;
use std::io;

use datapath::error::{SourceError, SourceErrorKind, errno_text};

use crate::source::retry::Failure;

/// Layers of the client whose own text says nothing about the cause.
const NOISE: [&str; 6] = [
    "error sending request",
    "client error (Connect)",
    "client error (SendRequest)",
    "request or response body error",
    "error decoding response body",
    "error reading a body from connection",
];

/// The causes of `error` from the outside in, without URLs (which hold secrets) and repetitions:
/// `tcp connect error: connection refused`.
pub(super) fn plain_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words: Vec<String> = Vec::new();
    let mut layer: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(current) = layer {
        let text = match current.downcast_ref::<io::Error>() {
            Some(io) => errno_text(io),
            None => current.to_string(),
        };
        let repeats = words.last().is_some_and(|last| last.contains(&text));
        if !repeats && !NOISE.contains(&text.as_str()) {
            words.push(text);
        }
        layer = current.source();
    }
    if words.is_empty() {
        error.to_string()
    } else {
        words.join(": ")
    }
}

/// True when the TLS layer itself refused: a certificate does not get better by asking again.
fn is_tls_refusal(error: &reqwest::Error) -> bool {
    let mut layer: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(current) = layer {
        if current.is::<rustls::Error>() {
            return true;
        }
        // What an `io::Error` wraps is not its source, but the source's source is.
        let wrapped = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        layer = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => current.source(),
        };
    }
    false
}

/// The failure of a connection or of a body, in words for the log and the termination message.
pub(super) fn transport_failure(error: reqwest::Error) -> Failure {
    let is_final = is_tls_refusal(&error) || error.is_builder();
    let kind = if error.is_connect() {
        SourceErrorKind::Connect
    } else {
        SourceErrorKind::Io
    };
    let error = SourceError::new(kind, format!("HTTP request errored: {}", plain_cause(error)));
    if is_final {
        Failure::Final(error)
    } else {
        Failure::Transient {
            error,
            retry_after: None,
        }
    }
}
