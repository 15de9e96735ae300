//! An HTTP/1.1 server on any stream.

use std::convert::Infallible;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};

/// The runtime for all asynchronous code.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));
    &RUNTIME
}

/// Lets hyper read `stream` to its end, as our listeners do. `handle` gets every request; the
/// responses are discarded.
pub fn serve<F: Future<Output = ()>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    handle: impl Fn(Request<Incoming>) -> F,
) {
    let service = service_fn(|request| {
        let handled = handle(request);
        async {
            handled.await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let serving = http1::Builder::new()
        // A client may close its side before the first response. Without this, hyper would drop
        // requests that it has not handled yet.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    // Malformed requests are errors like any other.
    runtime().block_on(serving).ok();
}
