//! A server of HTTP/1.1 on a stream.

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

/// What runs everything that is asynchronous.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));
    &RUNTIME
}

/// Has hyper read `stream` to its end, as our listeners do. `handle` gets every request; the answers are lost.
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
        // A client that has said all before the first answer still gets all answers: what it has said is what is tested.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    // What is no HTTP is an error like any other.
    runtime().block_on(serving).ok();
}
