//! Answers, and how they reach a client that is still sending.

use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use tokio::time::timeout;

use crate::listener::{ActiveGuard, Peer};

/// An answer of the server.
pub type Reply = Response<Full<Bytes>>;

/// Time for which a client that was answered early may go on sending. Closing the connection at once would reset it, and the
/// client might never see the answer.
pub const LINGER: Duration = Duration::from_secs(30);

/// An answer without a body.
pub fn empty_reply(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    reply
}

/// An answer in words.
pub fn text_reply(status: StatusCode, words: impl Into<Bytes>) -> Reply {
    typed_reply(status, "text/plain; charset=utf-8", words)
}

/// An answer of a type.
pub fn typed_reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply
}

/// The answer to a path that does not exist, as Go's server words it.
pub fn not_found() -> Reply {
    let mut reply = text_reply(StatusCode::NOT_FOUND, "404 page not found\n");
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}

/// Reads what a client still sends after its answer, for a while, and drops it; until then `engagement` lasts, so that the connection
/// is not closed for another one. Must be called on a runtime.
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

/// `reply` to a request of `peer` whose body is not wanted. A client that asked whether to send it has not begun; over HTTP/2, where
/// it need not ask, it may have.
pub fn refuse_body(reply: Reply, request: Request<Incoming>, peer: &Peer) -> Reply {
    let has_begun = request.version() == Version::HTTP_2 || !request.headers().contains_key(header::EXPECT);
    if has_begun {
        drain_body(request.into_body(), peer.active_guard());
    }
    reply
}
