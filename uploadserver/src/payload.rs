//! The payload of a request, and how it is fed into the intake of an upload.
//!
//! Each payload is read by its own task. hyper drops a handler when its connection breaks, and a
//! chunk that was taken from the socket and counted must not be dropped with it: a resumed upload
//! would have a hole.
//!
//! Time limits run only while the server waits for the client, so a slow disk never looks like a
//! stalled client. A job that fails closes the bridge. The task notices that while it waits, so
//! the answer is sent while the client is still sending.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use datapath::digest::Checksum;
use datapath::error::{SourceError, SourceErrorKind};
use http::HeaderMap;
use http_body_util::BodyExt;
use https::listener::ActiveGuard;
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::checksum;
use crate::form::FileField;
use crate::intake::{UploadIntake, client_gone_error};
use crate::reply;

/// The body of a request.
pub(crate) enum RequestPayload {
    /// The body itself.
    Whole(WholeBody),
    /// The file in a form.
    Form(Box<FileField>),
}

/// A body that is the object itself.
pub(crate) struct WholeBody {
    body: Incoming,
    trailers: HeaderMap,
    engagement: ActiveGuard,
}

/// How feeding a body into an upload ended.
#[derive(Debug)]
pub(crate) enum BodyEnd {
    /// The body is complete. Carries the checksum stated in a trailer.
    Whole(Option<Checksum>),
    /// The client stopped sending, or sent something malformed.
    Broken(SourceError),
    /// The upload has already ended: it failed or was stopped.
    Unwanted,
    /// Another request has taken the turn.
    Replaced,
}

impl BodyEnd {
    /// Returns the reason why the rest of the body has to come with another request; `None` if it
    /// does not.
    pub(crate) fn interruption_kind(&self) -> Option<SourceErrorKind> {
        match self {
            Self::Whole(_) | Self::Unwanted => None,
            Self::Broken(error) => Some(error.kind()),
            // Another request takes over when the client has found this connection dead, which the
            // server could not see.
            Self::Replaced => Some(SourceErrorKind::Connect),
        }
    }
}

impl RequestPayload {
    /// Creates the payload for a body that is the object itself.
    pub(crate) fn from_body(body: Incoming, engagement: ActiveGuard) -> Self {
        Self::Whole(WholeBody { body, trailers: HeaderMap::new(), engagement })
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self {
            Self::Form(field) => field.next_chunk().await,
            Self::Whole(whole) => whole.next_chunk().await,
        }
    }

    fn trailing_checksum(&self) -> Result<Option<Checksum>, SourceError> {
        match self {
            Self::Form(_) => Ok(None),
            Self::Whole(whole) => checksum::stated(&whole.trailers, false)
                .map_err(|error| SourceError::from_cause(SourceErrorKind::Invalid, error)),
        }
    }

    /// Reads the rest of the body for a while, so that the client can finish sending and read its
    /// answer.
    pub(crate) fn drain_rest(self) {
        match self {
            Self::Whole(whole) => reply::drain_body(whole.body, Some(whole.engagement)),
            Self::Form(field) => field.drain_rest(),
        }
    }
}

impl WholeBody {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| client_gone_error(&error))?;
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                Err(frame) => self.trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        Ok(None)
    }
}

/// Feeds `payload` into `intake` until its end. A client that sends nothing for `stall` while the
/// intake has room is treated as gone.
///
/// The future must not be dropped before it completes, or bytes are lost. Run it in its own task.
pub(crate) async fn feed_intake(
    payload: &mut RequestPayload,
    intake: &mut UploadIntake,
    stall: Duration,
    replaced: &CancellationToken,
) -> BodyEnd {
    loop {
        let mut next = pin!(payload.next_chunk());
        let received = match intake.next_soon(next.as_mut()).await {
            Ok(Some(received)) => Ok(received),
            Ok(None) => {
                // `replaced` counts only when no bytes come soon: bytes still in flight on the old
                // connection are taken first and need not be sent again.
                tokio::select! {
                    // The timer is created only for a client that is silent: setting one is a
                    // system call.
                    received = timeout(stall, next) => received,
                    () = replaced.cancelled() => return BodyEnd::Replaced,
                    () = intake.wait_closed() => return BodyEnd::Unwanted,
                }
            }
            Err(_) => return BodyEnd::Unwanted,
        };
        match received {
            Ok(Ok(Some(bytes))) => {
                if let Err(error) = intake.check_room(bytes.len()) {
                    return BodyEnd::Broken(error);
                }
                if intake.push_bytes(&bytes).await.is_err() {
                    return BodyEnd::Unwanted;
                }
            }
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return BodyEnd::Broken(error),
            Err(_) => return BodyEnd::Broken(stall_error(stall)),
        }
    }
    match payload.trailing_checksum() {
        Ok(checksum) => BodyEnd::Whole(checksum),
        Err(error) => BodyEnd::Broken(error),
    }
}

pub(crate) fn stall_error(stall: Duration) -> SourceError {
    let message = format!("no byte from the client for {} s", stall.as_secs());
    SourceError::new(SourceErrorKind::Stalled, message)
}
