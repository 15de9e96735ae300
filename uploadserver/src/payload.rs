//! The payload of a request, and the code that feeds it into the intake of an upload.
//!
//! Each payload is read by its own task. hyper drops a handler when its connection breaks. A chunk
//! that was already taken from the socket and counted must not be dropped with it, because a
//! resumed upload would then have a hole.
//!
//! Time limits apply only while the server waits for the client, so a slow disk never looks like a
//! stalled client. A job that fails closes the bridge. The task notices this while it waits for
//! bytes, so the response is sent while the client is still sending.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use https::listener::ActiveGuard;
use hyper::body::Incoming;
use stream::digest::Checksum;
use stream::error::{SourceError, SourceErrorKind};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::checksum;
use crate::form::FileField;
use crate::intake::{UploadIntake, client_gone_error};
use crate::reply;

/// The body of a request.
pub(crate) enum RequestPayload {
    /// The body of the request itself.
    Whole(WholeBody),
    /// The file in a form.
    Form(Box<FileField>),
}

/// A body that is itself the object.
pub(crate) struct WholeBody {
    body: Incoming,
    trailers: HeaderMap,
    engagement: ActiveGuard,
}

/// The way in which feeding a body into an upload ended.
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
    /// Returns the reason why the rest of the body has to be sent in another request, or `None` if
    /// no other request is needed.
    pub(crate) fn interruption_kind(&self) -> Option<SourceErrorKind> {
        match self {
            Self::Whole(_) | Self::Unwanted => None,
            Self::Broken(error) => Some(error.kind()),
            // A client sends another request when it has found this connection dead, which the
            // server could not see.
            Self::Replaced => Some(SourceErrorKind::Connect),
        }
    }
}

impl RequestPayload {
    /// Creates the payload for a body that is itself the object.
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

    /// Reads the rest of the body for a limited time, so that the client can finish sending and
    /// read the response.
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

/// Feeds `payload` into `intake` until the payload ends. A client that sends nothing for `stall`
/// while the intake has room is considered gone.
///
/// The future must not be dropped before it completes, because bytes would be lost. Run it in its
/// own task.
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
                // `replaced` is checked only when no bytes arrive soon: bytes still in flight on
                // the old connection are taken first, so that they need not be sent again.
                tokio::select! {
                    // The timer is created only while a client is silent, because setting one is a
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
