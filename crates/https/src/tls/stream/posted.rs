//! Messages behind the handshake that are no data: alerts, key updates, tickets, and requests to begin anew.

use rustls::{AlertDescription, Error};

use super::cipher::unexpected;
use super::records::{Kernel, Opener};

/// Bytes of a message that is not whole yet, at most. A ticket has some hundred bytes.
const MESSAGE_BYTES: usize = 16 << 10;

/// Warnings that a peer may send, as in rustls.
const MAX_WARNINGS: u32 = 4;

/// Key updates, and requests to begin anew, between which there is no data.
const MAX_IDLE: u32 = 32;

/// Types of messages (RFC 8446 §4, RFC 5246 §7.4).
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// State of these messages.
#[derive(Default)]
pub(super) struct Posted {
    /// The beginning of a message that came in pieces.
    part: Vec<u8>,
    warnings: u32,
    /// Key updates and the like since there was data.
    idle: u32,
    /// The peer wants us to use another key. Once is enough, however often it asks before it gets it.
    pub(super) is_update_wanted: bool,
    /// A warning to be sent.
    pub(super) refusal: Option<AlertDescription>,
}

impl Posted {
    /// There was data.
    pub(super) fn data(&mut self) {
        self.idle = 0;
    }

    /// Takes an alert. True if nothing more comes.
    pub(super) fn alert(&mut self, content: &[u8], kernel: &Kernel) -> Result<bool, Error> {
        let &[level, description] = content else {
            return Err(unexpected("an alert that is none"));
        };
        let alert = AlertDescription::from(description);
        if alert == AlertDescription::CloseNotify {
            return Ok(true);
        }
        // Warnings are no errors in TLS 1.2; in 1.3 there is a single one (RFC 8446 §6.1).
        let is_warning = level == super::WARNING && !kernel.is_new();
        self.warnings += 1;
        if (is_warning || alert == AlertDescription::UserCanceled) && self.warnings <= MAX_WARNINGS {
            return Ok(false);
        }
        Err(Error::AlertReceived(alert))
    }

    /// Takes handshake messages, or parts of them.
    pub(super) fn handshake(
        &mut self,
        content: &[u8],
        kernel: &mut Kernel,
        opener: &mut Opener,
    ) -> Result<(), Error> {
        self.part.extend_from_slice(content);
        let mut messages = std::mem::take(&mut self.part);
        let mut rest = messages.as_slice();
        while let Some(([kind, length @ ..], behind)) = rest.split_first_chunk::<4>() {
            let [high, middle, low] = length.map(usize::from);
            let length = high << 16 | middle << 8 | low;
            if length > MESSAGE_BYTES {
                return Err(unexpected("a message that is too long"));
            }
            let Some((message, next)) = behind.split_at_checked(length) else {
                break;
            };
            rest = next;
            self.message(*kind, message, rest.is_empty(), kernel, opener)?;
        }
        let done = messages.len() - rest.len();
        messages.drain(..done);
        self.part = messages;
        Ok(())
    }

    fn message(
        &mut self,
        kind: u8,
        message: &[u8],
        is_last: bool,
        kernel: &mut Kernel,
        opener: &mut Opener,
    ) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE {
            return Err(unexpected("nothing but messages about the connection"));
        }
        match (kind, message, kernel.is_new()) {
            // The next record has another key: nothing of the old one may follow (RFC 8446 §5.1).
            (KEY_UPDATE, [request @ (0 | 1)], true) if is_last => {
                self.is_update_wanted |= *request == 1;
                opener.update(kernel)
            }
            (NEW_SESSION_TICKET, ticket, true) => kernel.take_ticket(ticket),
            // Nobody is let in twice over one connection (RFC 5246 §7.2.2).
            (HELLO_REQUEST | CLIENT_HELLO, _, false) => {
                self.refusal = Some(AlertDescription::NoRenegotiation);
                Ok(())
            }
            _ => Err(unexpected("a handshake message behind the handshake")),
        }
    }
}

/// The alert about `error`; an alert is not answered.
pub(super) fn alert_of(error: &Error) -> Option<AlertDescription> {
    match error {
        Error::AlertReceived(_) => None,
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::PeerSentOversizedRecord => Some(AlertDescription::RecordOverflow),
        Error::EncryptError => Some(AlertDescription::InternalError),
        _ => Some(AlertDescription::UnexpectedMessage),
    }
}
