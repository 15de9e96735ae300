//! Serves HTTP/1.1 without TLS to clients on the same machine or in the same pod.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::sockets;

/// Time limit for receiving a request header. It includes the time between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections on `socket` and answers their requests with `answer`. A connection takes
/// one of `places`; further ones wait until another connection ends.
pub async fn serve_http<F, B>(socket: TcpListener, places: Arc<Semaphore>, answer: F)
where
    F: Fn(&Request<Incoming>) -> Response<B> + Clone + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let stream = match socket.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        sockets::prepare_socket(&stream);
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answered = answer(&request);
            async move { Ok::<_, Infallible>(answered) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection failed");
            }
            drop(place);
        });
    }
}
