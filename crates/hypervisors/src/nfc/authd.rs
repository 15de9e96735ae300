//! The daemon that listens on a host's port for disks (authd): lines of text, which lead to the
//! service behind it.

use std::time::Duration;

use fetch::messages::plain_line;
use fetch::retry::{AttemptError, with_time_limit};
use program::crypto::crypto_provider;
use stream::error::SourceErrorKind;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::ticket::NfcTicket;
use crate::blocks::transport::{connection_error, write_bytes};

/// Longest line, in bytes.
const MAX_LINE_BYTES: usize = 4096;

/// Longest wait for a line.
const LINE_LIMIT: Duration = Duration::from_secs(30);

/// Number of characters of a tag.
const TAG_CHARS: usize = 16;

/// Capabilities that a host must announce: NFC inside TLS, and the SHA-256 of its certificate,
/// which ESXi before 7.0.3 does not have. The version in a greeting says nothing about them.
const NEEDED: [&str; 2] = ["NFCSSL supported", "SHA256 supported"];

/// True if `greeting` lists all capabilities that are needed; it looks like `220 VMware
/// Authentication Daemon Version 1.10: SSL Required, NFCSSL supported/t, SHA256 supported`. `None`
/// if the line is something else.
pub fn has_capabilities(greeting: &str) -> Option<bool> {
    let (_, list) = greeting.strip_prefix("220 ")?.split_once(": ")?;
    let names = || list.split(',').map(|name| name.trim().trim_end_matches("/t"));
    Some(NEEDED.iter().all(|needed| names().any(|name| name == *needed)))
}

/// Checks the greeting `line`.
pub(super) fn check_greeting(line: &str) -> Result<(), AttemptError> {
    if has_capabilities(line).ok_or_else(|| refused_error("the greeting", line))? {
        return Ok(());
    }
    // Not confirmed: what to send to a host without SHA-256.
    Err(AttemptError::new_final(
        SourceErrorKind::Invalid,
        "the host is older than ESXi 7.0.3, which --transport nfc needs: use VMware's library (--transport vddk)",
    ))
}

/// Presents the ticket inside TLS, and asks for its service, which is told the word `tag` as well.
/// Returns the thumbprint that the host announces for the TLS session of the service.
pub(super) async fn request_service(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ticket: &NfcTicket,
    tag: &str,
) -> Result<String, AttemptError> {
    let NfcTicket { secret, service, .. } = ticket;
    // This line is not answered.
    write_bytes(stream, format!("SESSION {secret}\r\n").as_bytes()).await?;
    // The blank belongs to the line.
    write_bytes(stream, b"BANNER \r\n").await?;
    check_greeting(&read_line(stream).await?)?;
    let announced = ask(stream, &format!("THUMBPRINT_SHA2 {tag}"), "the ticket").await?;
    let refused = format!("a connection to {service}");
    let answer = ask(stream, &format!("PROXY {service}"), &refused).await?;
    tracing::debug!("the host answers {}", plain_line(&answer));
    Ok(announced)
}

/// Sends a line, and returns the answer to it. A refusal says that the host refuses `what`.
async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    line: &str,
    what: &str,
) -> Result<String, AttemptError> {
    write_bytes(stream, format!("{line}\r\n").as_bytes()).await?;
    let line = read_line(stream).await?;
    let answer = line.strip_prefix("200 ").map(|answer| answer.trim().to_owned());
    answer.ok_or_else(|| refused_error(what, &line))
}

/// Returns a random tag. A blank or a colon in it would be refused.
pub(super) fn random_tag() -> Result<String, AttemptError> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = [0; TAG_CHARS];
    crypto_provider().secure_random.fill(&mut bytes).map_err(|_| {
        AttemptError::new_final(SourceErrorKind::Io, "the system has no random numbers")
    })?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}

/// Reads a line without its end: byte by byte, because another protocol follows the last line.
pub(super) async fn read_line(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<String, AttemptError> {
    let reading = async {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if line.len() == MAX_LINE_BYTES {
                let message = format!("the host sends a line of more than {MAX_LINE_BYTES} bytes");
                return Err(AttemptError::new_final(SourceErrorKind::Invalid, message));
            }
            line.push(stream.read_u8().await.map_err(|error| connection_error(&error))?);
        }
        Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    };
    with_time_limit(LINE_LIMIT, reading).await
}

/// Creates the error for a line that refuses something. A new ticket may be accepted. Which lines
/// refuse a used or expired one is not confirmed, so all others than the expected one do.
fn refused_error(what: &str, line: &str) -> AttemptError {
    let message = format!("the host refuses {what}: {:?}", plain_line(line));
    AttemptError::new_transient(SourceErrorKind::Connect, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: &str = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, \
                            MKSDisplayProtocol:VNC , VMXARGS supported, NFCSSL supported/t, SHA256 supported";

    #[test]
    fn a_host_is_known_by_its_capabilities() {
        assert_eq!(has_capabilities(GREETING), Some(true));
        let older = GREETING.strip_suffix(", SHA256 supported").unwrap();
        for older in [older, "220 x: NFCSSL supported", "220 x: SHA256 supported/t", "220 x: y"] {
            assert_eq!(has_capabilities(older), Some(false), "{older}");
        }
        for other in ["530 no: SHA256 supported", "220 SHA256 supported", "", "SSH-2.0-OpenSSH"] {
            assert_eq!(has_capabilities(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn lines_are_short_and_end() {
        assert_eq!(read_line(&mut &b"200 ok\r\nrest"[..]).await.unwrap(), "200 ok");
        for wrong in [&b"200 ok"[..], &[b'x'; MAX_LINE_BYTES + 1]] {
            assert!(read_line(&mut &*wrong).await.is_err());
        }
    }

    #[test]
    fn tags_have_neither_blanks_nor_colons() {
        let tag = random_tag().unwrap();
        assert!(tag.len() == TAG_CHARS && tag != random_tag().unwrap(), "{tag}");
        assert!(!tag.contains([' ', ':']), "{tag}");
    }
}
