//! Streams the body of a response from the upload server to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::exchange::UploadExchange;
use crate::pool::ConnectionLease;

/// The body of a response on its way from the upload server to the client.
pub(crate) struct ReplyBody {
    body: Incoming,
    /// The connection to the upload server, which is held until the body has ended.
    lease: Option<ConnectionLease>,
    _exchange: Arc<UploadExchange>,
}

impl ReplyBody {
    pub(crate) fn new(
        body: Incoming,
        lease: ConnectionLease,
        exchange: Arc<UploadExchange>,
    ) -> Self {
        let mut download = Self { body, lease: Some(lease), _exchange: exchange };
        if download.body.is_end_stream() {
            download.release_lease();
        }
        download
    }

    fn release_lease(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if frame.is_none() || this.body.is_end_stream() {
            this.release_lease();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
