//! Describes transport failures in plain words: which server, which route and which cause.

use std::error::Error;
use std::time::{Duration, SystemTime};
use std::{io, iter};

use http::StatusCode;
use program::sockets;
use stream::error::{SourceAdvice, SourceError, SourceErrorKind, errno_text};
use url::Url;

use crate::address::url_origin;
use crate::messages::status_text;
use crate::proxy::ProxyConfig;
use crate::retry::AttemptError;

/// Timeout for one connection attempt, TLS handshake included.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Messages of the client's error layers that do not explain the cause, or that the final sentence
/// expresses better.
const NOISE: [&str; 9] = [
    "error sending request",
    "client error (Connect)",
    "client error (SendRequest)",
    "request or response body error",
    "error decoding response body",
    "error reading a body from connection",
    "dns error",
    "error resolving DNS",
    "tcp connect error",
];

/// Message about a response that does not begin with an HTTP version.
const NO_HTTP: &str = "invalid HTTP version parsed";

/// Message of a proxy tunnel for every failure on the way to the proxy.
const TUNNEL: &str = "tunnel error: failed to create underlying connection";

/// Beginning of the message of every failure until a tunnel is established.
const TUNNEL_PREFIX: &str = "tunnel error: ";

/// Message of a tunnel that the proxy refuses with any status except the one for a missing
/// password.
const TUNNEL_REFUSED: &str = "tunnel error: unsuccessful";

/// Message of a tunnel for which the proxy requires a password (407).
const TUNNEL_LOGIN: &str = "tunnel error: proxy authorization required";

/// The parts of a request that appear in the error message when it fails.
#[derive(Debug)]
pub(super) struct RequestRoute {
    /// The requested URL, and the URL that redirected to it.
    shown: String,
    /// Host and port of the server.
    server: String,
    /// The proxy in between: its origin, and its host and port.
    proxy: Option<(String, String)>,
    /// True if the URL's scheme is `https`.
    is_https: bool,
    /// True if the proxy opens a tunnel (`CONNECT`) to the server.
    has_tunnel: bool,
}

impl RequestRoute {
    /// Describes a request to `url`, which error messages call `shown`.
    pub(super) fn new(url: &Url, shown: String, proxy: &ProxyConfig) -> Self {
        let proxy = proxy.proxy_for(url);
        let is_http_proxy = proxy.is_some_and(|proxy| proxy.scheme().starts_with("http"));
        Self {
            shown,
            server: host_and_port(url),
            proxy: proxy.map(|proxy| (url_origin(proxy), host_and_port(proxy))),
            is_https: url.scheme() == "https",
            has_tunnel: url.scheme() == "https" && is_http_proxy,
        }
    }

    /// Explains a status for a URL with this scheme, and what to do about it. The response may
    /// come from a proxy in between.
    pub(super) fn describe_refusal(
        &self,
        status: StatusCode,
        scheme: &str,
        has_login: bool,
    ) -> String {
        let (shown, code) = (&self.shown, status.as_u16());
        let text = match code {
            407 => return self.login_sentence(scheme),
            400 if scheme == "http" => {
                format!("{shown} answers {}: is it https://?", status_text(status))
            }
            401 if has_login => {
                format!("{shown} does not accept the user name and the password (401): check them")
            }
            401 => {
                format!("{shown} requires a user name and a password (401)")
            }
            206 => format!(
                "{shown} answers with a part of the object (206), though all of it was asked for: a cache on the way is wrong"
            ),
            403 => format!(
                "{shown} denies access (403): does it need a login, or has a signed URL expired?"
            ),
            404 | 410 => format!("{shown} does not exist ({code}): is the address right?"),
            408 | 429 | 500..=599 => {
                format!("{shown} answers {}: try again later", status_text(status))
            }
            _ => format!("{shown} answers {}: check the address", status_text(status)),
        };
        match &self.proxy {
            Some((proxy, _)) => format!("through the proxy {proxy}: {text}"),
            None => text,
        }
    }

    /// Returns the sentence for a proxy that requires a password for a URL with this scheme.
    fn login_sentence(&self, scheme: &str) -> String {
        let proxy = match &self.proxy {
            Some((proxy, _)) => format!("the proxy {proxy}"),
            None => format!("{}: a proxy", self.shown),
        };
        format!(
            "{proxy} requires a user name and a password (407): set {scheme}_proxy to http://NAME:PASSWORD@HOST:PORT"
        )
    }

    /// Creates the error for a response that was not complete in time. Parts of it may have
    /// arrived.
    pub(super) fn incomplete_error(&self, limit: Duration) -> SourceError {
        let message = format!("{}: no complete answer within {} s", self.shown, limit.as_secs());
        SourceError::new(SourceErrorKind::Stalled, message)
    }
}

/// Formats the host and the effective port as `host port 443`.
fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host} port {port}"),
        // SOCKS proxies, whose default port is 1080 (RFC 1928 §3).
        None => format!("{host} port 1080"),
    }
}

/// Joins the causes of `error` from the outside in, without URLs (which may hold secrets),
/// repetitions and noise. Example: `connection refused`.
pub(super) fn plain_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut causes: Vec<String> = Vec::new();
    for layer in iter::successors(Some(&error as &dyn Error), |&layer| layer.source()) {
        let text = match layer.downcast_ref::<io::Error>() {
            Some(io) => errno_text(io),
            None => layer.to_string(),
        };
        // The message of tokio's timer for a connection that was not made in time.
        let text = match text.as_str() {
            "deadline has elapsed" => format!("no answer within {} s", CONNECT_LIMIT.as_secs()),
            _ => text,
        };
        let repeats = causes.last().is_some_and(|last| last.contains(&text));
        if !repeats && !NOISE.contains(&text.as_str()) && text != TUNNEL {
            causes.push(text);
        }
    }
    if causes.is_empty() { error.to_string() } else { causes.join(": ") }
}

/// Iterates over the layers of `error`, the outermost first.
fn error_layers(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    iter::successors(Some(error as &(dyn Error + 'static)), |&layer| {
        // The source of an `io::Error` is not the error that it wraps, but the source of that
        // error.
        match layer.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => layer.source(),
        }
    })
}

/// True if `test` is true for any layer of `error`.
fn any_layer(error: &reqwest::Error, test: impl Fn(&(dyn Error + 'static)) -> bool) -> bool {
    error_layers(error).any(test)
}

/// Explains a TLS failure that has a common cause in plain words.
fn tls_reason(error: &rustls::Error) -> Option<String> {
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
    let date = |time: rustls::pki_types::UnixTime| {
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
    };
    Some(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not signed by a trusted authority".to_owned()
        }
        Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            format!(
                "its certificate expired on {}: is the clock of this machine right?",
                date(*not_after)
            )
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => {
            format!(
                "its certificate is not valid before {}: is the clock of this machine right?",
                date(*not_before)
            )
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented, ..
        }) if presented.is_empty() => {
            "its certificate names no host (only a common name, which is not used)".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented, ..
        }) => {
            let names = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name));
            let names = names.collect::<Vec<_>>().join(", ");
            format!("its certificate is for {names}: is the address right?")
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS: is it http://?".to_owned()
        }
        // Keys below 2048 bits are refused as well.
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "a signature in its certificates is wrong, or made with a short RSA key".to_owned()
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it supports only TLS 1.1 or older".to_owned()
        }
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "it refuses the handshake: does it support a cipher suite with forward secrecy (ECDHE)?"
                .to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it requires a client certificate, which is not supported".to_owned()
        }
        _ => return None,
    })
}

/// Describes the failure with its peer: an unknown host name, a failed connection or failed TLS.
/// Also returns the cause in a few words.
fn failure_cause(error: reqwest::Error, route: &RequestRoute) -> (String, String) {
    let (is_connect, is_dns) = (error.is_connect(), error.is_dns());
    let is_of_tunnel = any_layer(&error, |layer| layer.to_string().starts_with(TUNNEL_PREFIX));
    // A tunnel only breaks without an error of its own while TLS begins at its end. A timeout does
    // not tell how far the connection got.
    let breaks_in_tunnel = route.has_tunnel && is_connect && !is_of_tunnel && !error.is_timeout();
    let is_tls = breaks_in_tunnel || any_layer(&error, |layer| layer.is::<rustls::Error>());
    let is_io = error.is_timeout() || any_layer(&error, |layer| layer.is::<io::Error>());
    let peer = match &route.proxy {
        // Once a tunnel is established, TLS is spoken with the server at its end.
        Some((_, proxy)) if !is_tls || is_of_tunnel => proxy,
        _ => &route.server,
    };
    let reason = error_layers(&error).find_map(|layer| tls_reason(layer.downcast_ref()?));
    let is_clear_text_to_tls = is_clear_text_to_tls(&error, route);
    let cause = plain_cause(error);
    let sentence = if let Some(reason) = reason {
        // Without a proxy, the URL in front of the sentence names the peer.
        if route.proxy.is_none() { reason } else { format!("TLS with {peer}: {reason}") }
    } else if is_tls {
        format!("TLS with {peer}: {cause}")
    } else if is_clear_text_to_tls {
        format!("{peer} does not speak HTTP: is it https://?")
    } else if cause == TUNNEL_LOGIN {
        return (route.login_sentence("https"), cause);
    } else if is_dns {
        format!("cannot find {peer}: {cause}")
    } else if is_connect && is_io {
        format!("cannot connect to {peer}: {cause}")
    } else if cause == TUNNEL_REFUSED {
        format!("{cause}: does it allow connections to {}, or require a password?", route.server)
    } else {
        cause.clone()
    };
    let sentence = match &route.proxy {
        Some((proxy, _)) => format!("through the proxy {proxy}: {sentence}"),
        None => sentence,
    };
    (sentence, cause)
}

/// True if a server of an `http` URL answers with bytes that are not HTTP, such as the alert of a
/// TLS server.
fn is_clear_text_to_tls(error: &reqwest::Error, route: &RequestRoute) -> bool {
    !route.is_https && any_layer(error, |layer| layer.to_string() == NO_HTTP)
}

fn is_unknown_issuer(layer: &(dyn Error + 'static)) -> bool {
    const ISSUER: rustls::Error =
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    layer.downcast_ref() == Some(&ISSUER)
}

fn is_refused_tunnel(layer: &(dyn Error + 'static)) -> bool {
    [TUNNEL_REFUSED, TUNNEL_LOGIN].contains(&&*layer.to_string())
}

/// Creates the failure of a connection or body, with a message for the log and the termination
/// message.
pub(super) fn transport_failure(error: reqwest::Error, route: &RequestRoute) -> AttemptError {
    let is_clear_text = is_clear_text_to_tls(&error, route);
    // A retry does not fix a certificate, and does not change a refusal by a proxy.
    let is_final = any_layer(&error, |layer| {
        layer.is::<rustls::Error>() || is_refused_tunnel(layer)
            // Our resolver has refused an address.
            || layer.is::<SourceError>()
    }) || is_clear_text
        || error.is_builder();
    let is_unknown =
        any_layer(&error, |layer| layer.downcast_ref().is_some_and(sockets::is_unknown_host));
    let kind = if is_unknown {
        SourceErrorKind::UnknownHost
    } else if error.is_connect() {
        SourceErrorKind::Connect
    } else {
        SourceErrorKind::Io
    };
    let states_remedy = is_clear_text
        || any_layer(&error, |layer| {
            is_refused_tunnel(layer) || layer.downcast_ref().and_then(tls_reason).is_some()
        });
    let advice = if any_layer(&error, is_unknown_issuer) {
        Some(SourceAdvice::TrustAuthority)
    } else {
        states_remedy.then_some(SourceAdvice::InMessage)
    };
    let (sentence, cause) = failure_cause(error, route);
    let plain = format!("{}: {sentence}", route.shown);
    let error = SourceError::new(kind, format!("HTTP request errored: {plain}"))
        .with_plain_words(&plain)
        .with_short_cause(&cause)
        .with_advice(advice);
    if is_final {
        AttemptError::Final(error)
    } else {
        AttemptError::Transient { error, retry_after: None }
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, Error};

    use super::*;

    #[test]
    fn common_failures_of_tls_have_a_reason_in_plain_words() {
        let alert = |alert| Error::AlertReceived(alert);
        let name = rustls::pki_types::ServerName::try_from("host").unwrap();
        let unnamed = CertificateError::NotValidForNameContext {
            expected: name.to_owned(),
            presented: Vec::new(),
        };
        for (error, reason) in [
            (alert(AlertDescription::ProtocolVersion), "it supports only TLS 1.1 or older"),
            (alert(AlertDescription::HandshakeFailure), "it refuses the handshake: "),
            (alert(AlertDescription::CertificateRequired), "it requires a client certificate"),
            (CertificateError::BadSignature.into(), "a signature in its certificates is wrong"),
            (unnamed.into(), "its certificate names no host"),
        ] {
            let found = tls_reason(&error).unwrap();
            assert!(found.starts_with(reason), "{error}: {found}");
        }
    }
}
