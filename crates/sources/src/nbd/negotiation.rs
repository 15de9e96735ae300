//! From a fresh connection to an export that can be read: fixed newstyle only, encrypted if that was asked for.

use std::io;
use std::sync::Arc;

use datapath::error::{SourceError, SourceErrorKind};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::agreement::Agreement;
use super::stream::{Stream, broken};
use super::uri::NbdUri;
use super::wire;
use super::wire::{BlockSizes, Fields, OptionReply, Violation, printable};
use crate::retry::AttemptFailed;

/// Longest data of a reply to an option: none that we ask for has more than a name and some numbers.
const MAX_REPLY_BYTES: u32 = 16 << 10;

/// Replies to one option; a server may describe an export in more ways than we know.
const MAX_REPLIES: usize = 64;

/// Agrees with the server behind `stream` on the export of `uri`.
pub(super) async fn negotiate(
    stream: Stream,
    uri: &NbdUri,
    tls: &Arc<ClientConfig>,
) -> Result<(Stream, Agreement), AttemptFailed> {
    let mut haggling = Haggling { stream };
    haggling.greet().await?;
    if let Some(name) = &uri.tls_name {
        haggling = haggling.start_tls(name, tls).await?;
    }
    let structured = haggling.accepts(wire::OPT_STRUCTURED_REPLY, &[]).await?;
    // Without structured replies block status may not be asked for (protocol, "NBD_OPT_SET_META_CONTEXT").
    let allocation = if structured {
        haggling.meta_context(&uri.export).await?
    } else {
        None
    };
    let (size, multi_conn, block_sizes) = haggling.go(&uri.export).await?;
    let agreement = Agreement {
        size,
        multi_conn,
        block_sizes,
        structured,
        allocation,
    };
    tracing::debug!(?agreement, "the NBD server agrees");
    Ok((haggling.stream, agreement))
}

/// A connection before the export is chosen.
struct Haggling {
    // Not buffered: nothing that was sent before TLS may be taken for what is sent inside it.
    stream: Stream,
}

/// The final reply to an option.
enum Outcome {
    Accepted,
    Refused { kind: u32, message: String },
}

impl Haggling {
    async fn greet(&mut self) -> Result<(), AttemptFailed> {
        let mut bytes = [0; 18];
        self.read(&mut bytes).await?;
        let mut fields = Fields(&bytes);
        let (password, style, flags) = (fields.u64(), fields.u64(), fields.u16().unwrap_or_default());
        if password != Some(wire::INIT_PASSWD) {
            return Err(AttemptFailed::from(Violation(format!(
                "it begins with {bytes:02x?}, as no NBD server does"
            ))));
        }
        if style == Some(wire::CLISERV_MAGIC) {
            return Err(invalid(
                "the NBD server speaks the oldstyle protocol only; use one that speaks fixed newstyle, like \
                 qemu-nbd or nbdkit without --oldstyle",
            ));
        }
        if style != Some(wire::IHAVEOPT) || flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(invalid(
                "the NBD server does not speak the fixed newstyle protocol",
            ));
        }
        let client_flags = wire::FLAG_FIXED_NEWSTYLE | (flags & wire::FLAG_NO_ZEROES);
        self.write(&u32::from(client_flags).to_be_bytes()).await
    }

    async fn start_tls(mut self, name: &str, tls: &Arc<ClientConfig>) -> Result<Self, AttemptFailed> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            let message = format!("{name:?} can be in no certificate: use tls-hostname=NAME");
            invalid(message)
        })?;
        self.write(&wire::option(wire::OPT_STARTTLS, &[])).await?;
        if let Outcome::Refused { message, .. } = self.outcome(wire::OPT_STARTTLS, |_, _| Ok(())).await? {
            return Err(invalid(format!(
                "the NBD server offers no TLS{message}; use nbd:// or nbd+unix:// if it may go without"
            )));
        }
        let secure = TlsConnector::from(Arc::clone(tls))
            .connect(server, self.stream)
            .await
            .map_err(no_tls)?;
        Ok(Self {
            stream: Box::new(secure),
        })
    }

    /// Tells if the server takes an option that we can do without.
    async fn accepts(&mut self, option: u32, data: &[u8]) -> Result<bool, AttemptFailed> {
        self.write(&wire::option(option, data)).await?;
        let outcome = self.outcome(option, |_, _| Ok(())).await?;
        Ok(matches!(outcome, Outcome::Accepted))
    }

    /// The number of `base:allocation`, if the server knows it.
    async fn meta_context(&mut self, export: &str) -> Result<Option<u32>, AttemptFailed> {
        let mut id = None;
        self.write(&wire::option(
            wire::OPT_SET_META_CONTEXT,
            &wire::set_meta_context(export),
        ))
        .await?;
        let outcome = self
            .outcome(wire::OPT_SET_META_CONTEXT, |kind, mut fields| {
                if kind == wire::REP_META_CONTEXT {
                    let number = fields.u32();
                    if fields.rest() == wire::BASE_ALLOCATION.as_bytes() {
                        id = number;
                    }
                }
                Ok(())
            })
            .await?;
        Ok(id.filter(|_| matches!(outcome, Outcome::Accepted)))
    }

    async fn go(&mut self, export: &str) -> Result<(u64, bool, BlockSizes), AttemptFailed> {
        let (mut described, mut block_sizes) = (None, BlockSizes::default());
        self.write(&wire::option(wire::OPT_GO, &wire::go(export))).await?;
        let outcome = self
            .outcome(wire::OPT_GO, |kind, mut fields| {
                match (kind, fields.u16()) {
                    (wire::REP_INFO, Some(wire::INFO_EXPORT)) => {
                        described = Some(wire::parse_export(fields)?);
                    }
                    (wire::REP_INFO, Some(wire::INFO_BLOCK_SIZE)) => block_sizes = BlockSizes::parse(fields)?,
                    // A server may describe an export in more ways than we know.
                    _ => {}
                }
                Ok(())
            })
            .await?;
        if let Outcome::Refused { kind, message } = outcome {
            return Err(no_export(export, kind, &message));
        }
        let Some((size, multi_conn)) = described else {
            return Err(AttemptFailed::from(Violation(
                "it opens the export without saying how large it is".into(),
            )));
        };
        Ok((size, multi_conn, block_sizes))
    }

    /// Reads the replies to `option`. Those before the final one are given to `inform`.
    async fn outcome(
        &mut self,
        option: u32,
        mut inform: impl FnMut(u32, Fields<'_>) -> Result<(), Violation>,
    ) -> Result<Outcome, AttemptFailed> {
        for _ in 0..MAX_REPLIES {
            let mut head = [0; OptionReply::BYTES];
            self.read(&mut head).await?;
            let OptionReply { kind, length } = OptionReply::parse(option, &head)?;
            if length > MAX_REPLY_BYTES {
                return Err(AttemptFailed::from(Violation(format!(
                    "a reply to option {option} has {length} bytes, up to {MAX_REPLY_BYTES} make sense"
                ))));
            }
            let mut data = vec![0; usize::try_from(length).unwrap_or_default()];
            self.read(&mut data).await?;
            match kind {
                wire::REP_ACK => return Ok(Outcome::Accepted),
                // Any option may be answered with this, and the remedy is always the same.
                wire::REP_ERR_TLS_REQD => {
                    return Err(invalid(
                        "the NBD server requires TLS: use nbds:// or nbds+unix://",
                    ));
                }
                kind if kind & wire::REP_FLAG_ERROR != 0 => {
                    let text = printable(&data);
                    let message = if text.is_empty() {
                        text
                    } else {
                        format!(": {text}")
                    };
                    return Ok(Outcome::Refused { kind, message });
                }
                kind => inform(kind, Fields(&data))?,
            }
        }
        Err(AttemptFailed::from(Violation(format!(
            "more than {MAX_REPLIES} replies to option {option}"
        ))))
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), AttemptFailed> {
        let result = self.stream.read_exact(bytes).await;
        result.map(|_| ()).map_err(|error| broken(&error))
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), AttemptFailed> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        writing.await.map_err(|error| broken(&error))
    }
}

/// The reason why the handshake failed: a certificate does not get better by looking again.
fn no_tls(error: io::Error) -> AttemptFailed {
    let refused = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    let error = SourceError::caused(SourceErrorKind::Connect, "TLS with the NBD server failed", error);
    match refused {
        true => AttemptFailed::Final(error),
        false => AttemptFailed::passing(error),
    }
}

/// The reason why the server does not open the export.
fn no_export(export: &str, kind: u32, message: &str) -> AttemptFailed {
    let name = if export.is_empty() {
        "a default export".to_owned()
    } else {
        format!("the export {export:?}")
    };
    match kind {
        wire::REP_ERR_UNKNOWN => invalid(format!("the NBD server has not got {name}{message}")),
        wire::REP_ERR_POLICY => invalid(format!("the NBD server does not give {name} to us{message}")),
        wire::REP_ERR_UNSUP => invalid(format!(
            "the NBD server does not know NBD_OPT_GO{message}; use one from after 2017"
        )),
        wire::REP_ERR_SHUTDOWN => AttemptFailed::transient(
            SourceErrorKind::Connect,
            format!("the NBD server is shutting down{message}"),
        ),
        other => invalid(format!(
            "the NBD server does not open {name}: reply {other:#x}{message}"
        )),
    }
}

/// A failure that does not get better by trying again.
fn invalid(message: impl Into<String>) -> AttemptFailed {
    AttemptFailed::lasting(SourceErrorKind::Invalid, message)
}
