//! Negotiation on a new connection, until an export can be read. Only the "fixed newstyle"
//! handshake is supported. The connection is encrypted if that was requested.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use fetch::retry::AttemptError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stream::error::{SourceAdvice, SourceError, SourceErrorKind};
use tokio_rustls::TlsConnector;

use super::connection::NbdAgreement;
use super::uri::NbdUri;
use super::wire;
use super::wire::{BlockSizes, OptionReply, printable_text};
use crate::blocks::ProtocolViolation;
use crate::blocks::transport::{Stream, read_bytes, write_bytes};

/// Longest data of a reply to an option, in bytes. None of the options that are sent needs more
/// than a name and some numbers.
const MAX_REPLY_BYTES: u32 = 16 << 10;

/// Longest wait for the greeting, which a server sends as soon as it is connected.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of replies to one option. A server may describe an export in more ways than this
/// client supports.
const MAX_REPLIES: usize = 64;

/// Negotiates the export of `uri` with the server behind `stream`.
pub(super) async fn negotiate(
    stream: Stream,
    uri: &NbdUri,
    tls: &Arc<ClientConfig>,
) -> Result<(Stream, NbdAgreement), AttemptError> {
    let mut negotiation = NbdNegotiation { stream };
    negotiation.exchange_greeting().await?;
    // Start TLS before all other options, because an attacker could change unencrypted ones.
    if let Some(name) = &uri.tls_name {
        negotiation = negotiation.start_tls(name, tls).await?;
    }
    let outcome = negotiation.ask_option(wire::OPT_STRUCTURED_REPLY, &[], |_, _| Ok(())).await?;
    let structured = matches!(outcome, OptionOutcome::Accepted);
    // Block status must not be requested without structured replies (protocol,
    // "NBD_OPT_SET_META_CONTEXT").
    let allocation = if structured { negotiation.meta_context(&uri.export).await? } else { None };
    let (size, multi_conn, block_sizes) = negotiation.negotiate_go(&uri.export).await?;
    let agreement = NbdAgreement { size, multi_conn, block_sizes, structured, allocation };
    tracing::debug!(?agreement, "the NBD server agrees");
    Ok((negotiation.stream, agreement))
}

/// A connection on which the export is not chosen yet.
struct NbdNegotiation {
    // The stream is not buffered: data sent before TLS must not be taken for data sent inside it.
    stream: Stream,
}

/// The final reply to an option.
enum OptionOutcome {
    Accepted,
    Refused { kind: u32, message: String },
}

impl NbdNegotiation {
    async fn exchange_greeting(&mut self) -> Result<(), AttemptError> {
        let mut bytes = [0; 18];
        let greeting =
            tokio::time::timeout(GREETING_LIMIT, read_bytes(&mut self.stream, &mut bytes)).await;
        greeting.unwrap_or_else(|_| {
            let seconds = GREETING_LIMIT.as_secs();
            let message =
                format!("it sent no NBD greeting within {seconds} s: check the host and the port");
            // A server that sends nothing is not an NBD server, and will not be one a moment later.
            Err(invalid_error(message))
        })?;
        let mut fields = &bytes[..];
        let (password, style, flags) = (fields.get_u64(), fields.get_u64(), fields.get_u16());
        if password != wire::INIT_PASSWD {
            return Err(AttemptError::from(ProtocolViolation(format!(
                "it begins with {}, which is not an NBD greeting: check the host and the port",
                printable_text(&bytes)
            ))));
        }
        if style == wire::CLISERV_MAGIC {
            return Err(invalid_error(
                "the NBD server speaks the oldstyle protocol only; use one that speaks fixed newstyle, like \
                 qemu-nbd or nbdkit without --oldstyle",
            ));
        }
        if style != wire::IHAVEOPT || flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(invalid_error("the NBD server does not speak the fixed newstyle protocol"));
        }
        // A client must not set a flag that the server has not set (protocol, "Client flags").
        let client_flags = wire::FLAG_FIXED_NEWSTYLE | (flags & wire::FLAG_NO_ZEROES);
        write_bytes(&mut self.stream, &u32::from(client_flags).to_be_bytes()).await
    }

    async fn start_tls(
        mut self,
        name: &str,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, AttemptError> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            let message =
                format!("{name:?} cannot be the name in a certificate: use tls-hostname=NAME");
            invalid_error(message)
        })?;
        if let OptionOutcome::Refused { message, .. } =
            self.ask_option(wire::OPT_STARTTLS, &[], |_, _| Ok(())).await?
        {
            return Err(invalid_error(format!(
                "the NBD server offers no TLS{message}; use nbd:// or nbd+unix:// to connect without TLS"
            )));
        }
        let secure = TlsConnector::from(Arc::clone(tls))
            .connect(server, self.stream)
            .await
            .map_err(no_tls)?;
        Ok(Self { stream: Box::new(secure) })
    }

    /// Returns the number of the context `base:allocation`, if the server supports it.
    async fn meta_context(&mut self, export: &str) -> Result<Option<u32>, AttemptError> {
        let mut id = None;
        let wanted = wire::set_meta_context(export);
        let outcome = self
            .ask_option(wire::OPT_SET_META_CONTEXT, &wanted, |kind, mut fields| {
                if kind == wire::REP_META_CONTEXT {
                    let number = fields.try_get_u32();
                    if fields == wire::BASE_ALLOCATION.as_bytes() {
                        id = number.ok();
                    }
                }
                Ok(())
            })
            .await?;
        // If the server finally refuses, the contexts that it announced before are not valid.
        Ok(id.filter(|_| matches!(outcome, OptionOutcome::Accepted)))
    }

    async fn negotiate_go(
        &mut self,
        export: &str,
    ) -> Result<(u64, bool, BlockSizes), AttemptError> {
        let (mut described, mut block_sizes) = (None, BlockSizes::default());
        // The older option, `NBD_OPT_EXPORT_NAME`, is not used: it cannot report errors, because
        // the server closes the connection instead.
        let outcome = self
            .ask_option(wire::OPT_GO, &wire::encode_go(export), |kind, mut fields| {
                match (kind, fields.try_get_u16()) {
                    (wire::REP_INFO, Ok(wire::INFO_EXPORT)) => {
                        described = Some(wire::parse_export(fields)?);
                    }
                    (wire::REP_INFO, Ok(wire::INFO_BLOCK_SIZE)) => {
                        block_sizes = BlockSizes::parse(fields)?
                    }
                    // A server may describe an export in more ways than this client supports.
                    _ => {}
                }
                Ok(())
            })
            .await?;
        if let OptionOutcome::Refused { kind, message } = outcome {
            return Err(no_export(export, kind, &message));
        }
        let Some((size, multi_conn)) = described else {
            return Err(AttemptError::from(ProtocolViolation(
                "it opens the export without reporting its size".into(),
            )));
        };
        Ok((size, multi_conn, block_sizes))
    }

    /// Sends `option` with its `data`. Replies before the final one are passed to `inform`.
    async fn ask_option(
        &mut self,
        option: u32,
        data: &[u8],
        mut inform: impl FnMut(u32, &[u8]) -> Result<(), ProtocolViolation>,
    ) -> Result<OptionOutcome, AttemptError> {
        write_bytes(&mut self.stream, &wire::encode_option(option, data)).await?;
        for _ in 0..MAX_REPLIES {
            let mut head = [0; OptionReply::BYTES];
            read_bytes(&mut self.stream, &mut head).await?;
            let OptionReply { kind, length } = OptionReply::parse(option, &head)?;
            if length > MAX_REPLY_BYTES {
                return Err(AttemptError::from(ProtocolViolation(format!(
                    "a reply to option {option} has {length} bytes, the limit is {MAX_REPLY_BYTES}"
                ))));
            }
            let mut data = vec![0; usize::try_from(length).unwrap_or_default()];
            read_bytes(&mut self.stream, &mut data).await?;
            match kind {
                wire::REP_ACK => return Ok(OptionOutcome::Accepted),
                // Any option may get this reply, and the remedy is always the same.
                wire::REP_ERR_TLS_REQD => {
                    return Err(invalid_error(
                        "the NBD server requires TLS: use nbds:// or nbds+unix://",
                    ));
                }
                kind if kind & wire::REP_FLAG_ERROR != 0 => {
                    let text = printable_text(&data);
                    let message = if text.is_empty() { text } else { format!(": {text}") };
                    return Ok(OptionOutcome::Refused { kind, message });
                }
                kind => inform(kind, &data)?,
            }
        }
        Err(AttemptError::from(ProtocolViolation(format!(
            "more than {MAX_REPLIES} replies to option {option}"
        ))))
    }
}

/// Creates the error for a failed handshake. A rejected certificate is final, because a retry does
/// not fix it.
fn no_tls(error: io::Error) -> AttemptError {
    let refused = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    let error = SourceError::with_context(
        SourceErrorKind::Connect,
        "TLS with the NBD server failed",
        error,
    );
    if refused { AttemptError::Final(error) } else { AttemptError::from_transient(error) }
}

/// Creates the error for an export that the server does not open.
fn no_export(export: &str, kind: u32, message: &str) -> AttemptError {
    let name =
        if export.is_empty() { "default export".to_owned() } else { format!("export {export:?}") };
    match kind {
        wire::REP_ERR_UNKNOWN => {
            let message = format!("the NBD server has no {name}{message}");
            let error = SourceError::new(SourceErrorKind::Invalid, message);
            AttemptError::Final(error.with_advice(SourceAdvice::CheckExport))
        }
        wire::REP_ERR_POLICY => {
            invalid_error(format!("the NBD server refuses access to the {name}{message}"))
        }
        wire::REP_ERR_UNSUP => invalid_error(format!(
            "the NBD server does not support NBD_OPT_GO{message}; use a version from after 2017"
        )),
        wire::REP_ERR_SHUTDOWN => AttemptError::new_transient(
            SourceErrorKind::Connect,
            format!("the NBD server is shutting down{message}"),
        ),
        other => invalid_error(format!(
            "the NBD server does not open the {name}: reply {other:#x}{message}"
        )),
    }
}

/// Creates a failure that no retry can fix.
fn invalid_error(message: impl Into<String>) -> AttemptError {
    AttemptError::new_final(SourceErrorKind::Invalid, message)
}
