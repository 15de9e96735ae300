//! Streams the client's body to the upload server. Bytes are passed on as they arrive, without
//! being copied.
//!
//! The two sockets provide back pressure; `memory` lists the buffers between them.
//!
//! If a client disconnects, the future of its request or this body is dropped. Either of them
//! closes the connection to the upload server, which sees a truncated body. A client that receives
//! an early response may continue to send for a while: closing the connection at once would reset
//! it, and the response would be lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::exchange::UploadExchange;

/// Time that an upload server has to react to `Expect: 100-continue`. After this time the body is
/// sent anyway. RFC 9110 §10.1.1 leaves the time open; Go's clients wait equally long.
const EXPECT_LIMIT: Duration = Duration::from_secs(1);

/// The client's body on its way to the upload server.
pub(crate) struct RequestBody {
    /// The body, or `None` once it has ended or failed.
    body: Option<Incoming>,
    gate: Option<BodyGate>,
    /// Timer of the rate limits that must expire before the next frame.
    pause: Option<Pin<Box<Sleep>>>,
    exchange: Arc<UploadExchange>,
}

/// Holds the body back until the upload server asks for it.
struct BodyGate {
    wanted: oneshot::Receiver<()>,
    timer: Pin<Box<Sleep>>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, exchange: Arc<UploadExchange>) -> Self {
        if body.is_end_stream() {
            exchange.note_sent();
        }
        Self { body: (!body.is_end_stream()).then_some(body), gate: None, pause: None, exchange }
    }

    /// Holds the body back until the sender is used or dropped, or [`EXPECT_LIMIT`] has passed.
    /// The client has not begun to send, and does not have to if the upload server rejects the
    /// request.
    pub(crate) fn hold_until_wanted(&mut self) -> oneshot::Sender<()> {
        let (want, wanted) = oneshot::channel();
        self.gate = Some(BodyGate { wanted, timer: Box::pin(sleep(EXPECT_LIMIT)) });
        want
    }

    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(gate) = &mut self.gate {
            if Pin::new(&mut gate.wanted).poll(cx).is_pending() {
                ready!(gate.timer.as_mut().poll(cx));
            }
            self.gate = None;
        }
        Poll::Ready(())
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    /// Counts bytes that are forwarded, and sets the pause before the next ones.
    fn count_bytes(&mut self, bytes: usize) {
        let paces = self.exchange.permit.iter().flat_map(|permit| &permit.paces);
        let next = paces.map(|pace| pace.pass_bytes(bytes)).max();
        let now = Instant::now();
        let next = next.filter(|next| *next > now);
        self.exchange.add_bytes(bytes, next.unwrap_or(now));
        self.pause = next.map(|next| Box::pin(sleep_until(next)));
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        ready!(this.poll_gate(cx));
        ready!(this.poll_pause(cx));
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => this.count_bytes(frame.data_ref().map_or(0, Bytes::len)),
            Some(Err(_)) => {
                this.body = None;
                this.exchange.note_abandoned();
            }
            None => this.body = None,
        }
        // The body may not be polled again after its last frame, so its end is recorded here.
        if this.is_end_stream() {
            this.exchange.note_sent();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // A client that received an early response may finish sending, because otherwise it might
        // not see the response. A client that is still waiting for `100 Continue` must not be
        // asked for its body any more.
        if self.gate.is_none()
            && let Some(body) = self.body.take()
        {
            https::reply::drain_body(body, Some(self.exchange.engagement.clone()));
        }
    }
}
