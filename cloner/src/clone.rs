//! Runs a clone: sends the stream of a volume to an upload server, and reports the result.

use std::num::NonZeroUsize;
use std::sync::Arc;

use codec::encode::outgoing::EncodedStream;
use codec::encode::{CompressionRule, Encoding};
use http::StatusCode;
use https::client::NoResponseError;
use program::env::{ProcessEnv, is_pace_fixed};
use stream::error::ThreadStartError;
use stream::observe::Stage;

use crate::client::{ServerResponse, UploadClient};
use crate::source::{Tally, VolumeReadError, VolumeSource};

/// Maximum number of encoder threads. Two of them compress faster than a 10 Gbit/s network can
/// send.
const MAX_ENCODERS: usize = 4;

/// Reasons why a clone failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloneError {
    /// The volume cannot be read.
    #[error(transparent)]
    Source(#[from] VolumeReadError),
    /// The server cannot be reached, or the connection broke.
    #[error(transparent)]
    Transport(#[from] NoResponseError),
    /// The server rejected the clone.
    #[error("Unexpected status code {}{}", .0.status.as_u16(), reason_suffix(.0))]
    Refused(ServerResponse),
    /// The server answered with success before the whole clone was sent.
    #[error("the server answered {0} before everything was sent")]
    Early(StatusCode),
    /// A thread for reading or encoding could not be started.
    #[error(transparent)]
    Thread(#[from] ThreadStartError),
    /// A bug: a thread panicked.
    #[error("{0}")]
    Internal(String),
}

impl CloneError {
    /// The failures that the metrics distinguish, each with its stage and its kind.
    pub(crate) const TROUBLES: [(Stage, &'static str); 4] = [
        (Stage::Source, "io"),
        (Stage::Target, "transport"),
        (Stage::Target, "refused"),
        (Stage::Target, "early"),
    ];

    /// Returns the entry in [`Self::TROUBLES`] for this error, or `None` for a bug or a thread
    /// that could not be started.
    pub(crate) fn stage_and_kind(&self) -> Option<(Stage, &'static str)> {
        let [source, transport, refused, early] = Self::TROUBLES;
        match self {
            Self::Source(_) => Some(source),
            Self::Transport(_) => Some(transport),
            Self::Refused(_) => Some(refused),
            Self::Early(_) => Some(early),
            Self::Thread(_) | Self::Internal(_) => None,
        }
    }
}

fn reason_suffix(answer: &ServerResponse) -> String {
    if answer.reason.is_empty() { String::new() } else { format!(": {}", answer.reason) }
}

/// Returns the encoding of zstd for a network.
pub(crate) fn zstd_for_network() -> Encoding {
    Encoding::Zstd(CompressionRule::new(is_pace_fixed(&ProcessEnv)))
}

/// Sends `source` to the server of `client`, and returns the encoding used: `fixed`, or zstd if the
/// server accepts it, otherwise snappy. Succeeds only if the whole volume was sent and the server
/// answered with a 2xx status.
pub(crate) async fn send_volume(
    source: VolumeSource,
    client: &UploadClient,
    fixed: Option<Encoding>,
    tally: &Arc<Tally>,
) -> Result<Encoding, CloneError> {
    let encoding = match fixed {
        Some(encoding) => encoding,
        None if client.takes_zstd().await => zstd_for_network(),
        None => Encoding::Snappy,
    };
    let content_type = source.content_type();
    tracing::info!("Set header to {content_type}");
    tracing::debug!("sending the clone in {encoding:?}");
    let outgoing = EncodedStream::start(
        move |outlet| source.read_into(outlet),
        encoding,
        encoder_threads(),
        Arc::clone(tally),
    )?;
    let answer = client.post_clone(content_type, encoding, outgoing).await;
    // A read error of the volume breaks the connection too. The read error is the actual cause, so
    // it is reported instead of the connection error.
    if tally.is_broken() {
        return Err(match tally.take_failure() {
            Some(error) => error.into(),
            None => CloneError::Internal(program::panics::first_panic()),
        });
    }
    match answer? {
        answer if !answer.status.is_success() => Err(CloneError::Refused(answer)),
        answer if !tally.is_complete() => Err(CloneError::Early(answer.status)),
        _ => Ok(encoding),
    }
}

/// Returns the number of encoder threads: one for each CPU that this process may use, up to a
/// maximum.
pub(crate) fn encoder_threads() -> NonZeroUsize {
    let most = NonZeroUsize::MIN.saturating_add(MAX_ENCODERS - 1);
    program::job::data_threads().min(most)
}
