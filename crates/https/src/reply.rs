//! Builds responses, and delivers them to a client that is still sending.

use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use tokio::time::timeout;

use crate::listener::{ActiveGuard, Peer};

/// A response of a server.
pub type Reply = Response<Full<Bytes>>;

/// Time for which a client may continue to send after an early response. If the connection were
/// closed at once, the kernel would reset it, and the client might never receive the response.
pub const LINGER: Duration = Duration::from_secs(30);

/// Builds a response without a body.
pub fn empty_reply(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    reply
}

/// Builds a plain-text response.
pub fn text_reply(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    typed_reply(status, "text/plain; charset=utf-8", text)
}

/// Builds a response with a body of the given content type.
pub fn typed_reply(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply
}

/// Builds the response for an unknown path, worded as in Go's server.
pub fn not_found() -> Reply {
    let mut reply = text_reply(StatusCode::NOT_FOUND, "404 page not found\n");
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}

/// Reads and discards the rest of a request body after the response, for at most [`LINGER`].
/// Meanwhile `engagement` protects the connection from eviction. Must be called on a tokio
/// runtime.
pub fn drain_body<B: Body + Send + Unpin + 'static>(mut body: B, engagement: Option<ActiveGuard>)
where
    B::Data: Send,
    B::Error: Send,
{
    if !body.is_end_stream() {
        tokio::spawn(timeout(LINGER, async move {
            while let Some(Ok(_)) = body.frame().await {}
            drop(engagement);
        }));
    }
}

/// Returns `reply` for a request of `peer` whose body is not needed, and discards the body if the
/// client may already be sending it. A client that sent `Expect` over HTTP/1.1 is still waiting,
/// but over HTTP/2 it may have begun to send anyway.
pub fn refuse_body(reply: Reply, request: Request<Incoming>, peer: &Peer) -> Reply {
    let has_begun =
        request.version() == Version::HTTP_2 || !request.headers().contains_key(header::EXPECT);
    if has_begun {
        drain_body(request.into_body(), peer.active_guard());
    }
    reply
}
