//! Connects to the service for disks of a host: TCP, the host's daemon inside a first TLS session,
//! and the service inside a second one on the same TCP connection.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use fetch::Network;
use fetch::error::invalid_error;
use fetch::messages::plain_line;
use fetch::retry::AttemptError;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error};
use stream::error::{SourceError, SourceErrorKind, errno_text};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

use super::authd::{check_greeting, read_line, request_service};
use super::steps::StepList;
use super::ticket::{NfcTicket, TLS_SUFFIX};
use crate::blocks::transport::{Stream, connect_kind, connect_tcp};
use crate::pin::Thumbprint;

/// Connects to the port of the host within `limit`.
pub(super) async fn connect_host(
    ticket: &NfcTicket,
    network: &Network,
    limit: Duration,
) -> Result<TcpStream, AttemptError> {
    let NfcTicket { host, port, .. } = ticket;
    let (_, url) = host_names(host, *port).map_err(AttemptError::Final)?;
    network.policy.check_url(&url).map_err(AttemptError::Final)?;
    let connecting = tokio::time::timeout(limit, connect_tcp(host, *port)).await;
    connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
        let message = format!(
            "cannot connect to it: {}; this machine needs TCP to port {port} of every ESXi host, or use --transport lease or vddk",
            errno_text(&error)
        );
        AttemptError::new_transient(connect_kind(&error), message)
    })
}

/// Connects to the service that `ticket` is for, which is told the word `tag` later.
pub(super) async fn connect_service(
    mut tcp: TcpStream,
    ticket: &NfcTicket,
    tag: &str,
    network: &Network,
    steps: &mut StepList,
) -> Result<Stream, AttemptError> {
    let NfcTicket { host, port, service, .. } = ticket;
    let (name, _) = host_names(host, *port).map_err(AttemptError::Final)?;
    steps.add("port", format!("TCP to port {port} of {host} is open"));
    let greeting = read_line(&mut tcp).await?;
    steps.add("greeting", plain_line(&greeting));
    check_greeting(&greeting)?;
    steps.add("capabilities", "the host has all that are needed".to_owned());
    let trust = match ticket.thumbprint.clone() {
        Some(thumbprint) => thumbprint.client_config().map_err(AttemptError::Final)?,
        None => Arc::clone(&network.tls),
    };
    let mut first = start_tls(tcp, &name, &trust, "the first TLS session").await?;
    let certificates = first.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = certificates.first().map(|first| first.to_vec()).unwrap_or_default();
    let same = Thumbprint::of_certificate(&certificate).map_err(AttemptError::Final)?;
    let trusted = match &ticket.thumbprint {
        Some(_) => "matches the thumbprint of the ticket",
        None => "is signed by a trusted authority, the ticket has no thumbprint",
    };
    steps.add("certificate", format!("it {trusted}: {same}"));
    let announced = request_service(&mut first, ticket, tag).await?;
    check_announced(&announced, &certificate)?;
    let (tcp, mut session) = first.into_inner();
    // The host is silent now. The first session is given up without a word.
    if !matches!(session.reader().read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    {
        return Err(AttemptError::new_final(
            SourceErrorKind::Invalid,
            "the host sends more than the lines of the first TLS session",
        ));
    }
    let stream: Stream = if service.ends_with(TLS_SUFFIX) {
        let same = same.client_config().map_err(AttemptError::Final)?;
        Box::new(start_tls(tcp, &name, &same, "the second TLS session").await?)
    } else {
        Box::new(tcp)
    };
    steps.add("service", format!("{service} accepts the ticket"));
    Ok(stream)
}

/// Returns the name that the host's certificate is for, and a URL of the host.
fn host_names(host: &str, port: u16) -> Result<(ServerName<'static>, Url), SourceError> {
    let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let name = ServerName::try_from(host.to_owned()).ok();
    let url = Url::parse(&format!("https://{bracketed}:{port}/")).ok();
    name.zip(url).ok_or_else(|| invalid_error("vSphere names it, but it cannot be a host"))
}

/// Compares the thumbprint that the host announces for the second session with the certificate of
/// the first one.
fn check_announced(text: &str, certificate: &[u8]) -> Result<(), AttemptError> {
    let announced = Thumbprint::parse(text).ok().filter(Thumbprint::is_sha256);
    if announced.is_some_and(|announced| announced.is_of(certificate)) {
        return Ok(());
    }
    Err(AttemptError::new_final(
        SourceErrorKind::Connect,
        "the host announces another certificate than it has: somebody may listen on the way",
    ))
}

async fn start_tls(
    tcp: TcpStream,
    name: &ServerName<'static>,
    config: &ClientConfig,
    what: &str,
) -> Result<TlsStream<TcpStream>, AttemptError> {
    let mut config = config.clone();
    config.alpn_protocols.clear();
    // Each handshake is a full one, which shows the certificate.
    config.resumption = Resumption::disabled();
    let starting = TlsConnector::from(Arc::new(config)).connect(name.clone(), tcp);
    starting.await.map_err(|error| {
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
        let is_final = matches!(cause, Some(Error::General(_) | Error::InvalidCertificate(_)));
        let error = SourceError::with_context(SourceErrorKind::Connect, what, error);
        if is_final { AttemptError::Final(error) } else { AttemptError::from_transient(error) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_certificate_must_be_the_one_of_the_first_session() {
        let sha256 = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        assert!(check_announced(sha256, b"abc").is_ok());
        let sha1 = "A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D";
        for (text, certificate) in [(sha256, &b"abd"[..]), (sha1, b"abc"), ("Connect", b"abc")] {
            assert!(check_announced(text, certificate).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        for host in ["esx1.example.org", "192.0.2.1", "2001:db8::1"] {
            assert!(host_names(host, 902).is_ok(), "{host}");
        }
        for host in ["", "a b", "a/b", "-"] {
            assert!(host_names(host, 902).is_err(), "{host}");
        }
    }
}
