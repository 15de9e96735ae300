//! The listener, from the first look at the image to the importer's last word.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use program::paths::Paths;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::answer::Site;
use crate::disk::{Disk, NoDisk};
use crate::handoff::{self, Ready};

/// Connections at once. The importer needs a few; more wait until one of these ends.
const MAX_CONNECTIONS: usize = 64;

/// Time that a client has for the header of a request, the time between two requests included.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause when no connection can be accepted (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The disk that is served, and the files that tell of it.
pub(crate) struct Config {
    pub(crate) port: u16,
    pub(crate) image_dir: PathBuf,
    pub(crate) ready_file: PathBuf,
    pub(crate) done_file: PathBuf,
    pub(crate) paths: Paths,
    pub(crate) environment: Vec<(String, String)>,
}

/// The end of the server.
pub(crate) enum Ended {
    /// The importer has what it wanted.
    Done,
    /// The server was told to stop.
    Stopped,
}

/// The reasons why nothing is served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeFailed {
    #[error(transparent)]
    Image(#[from] NoDisk),
    #[error("Failed listening on localhost:{port}: {cause}")]
    Listen { port: u16, cause: io::Error },
    #[error("Failed creating \"ready\" file {}: {cause}", path.display())]
    Ready { path: PathBuf, cause: io::Error },
}

/// Serves the disk until the importer is done, or `stop`.
pub(crate) async fn run(config: &Config, stop: &CancellationToken) -> Result<Ended, ServeFailed> {
    let disk = Disk::find(&config.image_dir, &config.paths)?;
    let listen = |cause| ServeFailed::Listen {
        port: config.port,
        cause,
    };
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port))
        .await
        .map_err(listen)?;
    let port = socket.local_addr().map_err(listen)?.port();
    // `localhost` may be either; a pod without IPv6 has but one.
    let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
    let ready = Ready::announce(&config.ready_file, &disk.name).map_err(|cause| ServeFailed::Ready {
        path: config.ready_file.clone(),
        cause,
    })?;
    tracing::info!(
        "Serving {} on HTTP port: {port}",
        config
            .image_dir
            .join(String::from_utf8_lossy(&disk.name).as_ref())
            .display()
    );
    let site = Arc::new(Site::new(disk, &config.environment));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for socket in second.into_iter().chain([socket]) {
        tokio::spawn(accept(socket, Arc::clone(&site), Arc::clone(&places)));
    }
    let ended = tokio::select! {
        () = handoff::done(&config.done_file) => Ended::Done,
        () = stop.cancelled() => Ended::Stopped,
    };
    drop(ready);
    Ok(ended)
}

async fn accept(socket: TcpListener, site: Arc<Site>, places: Arc<Semaphore>) {
    // It is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match socket.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve(stream, Arc::clone(&site), place));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, site: Arc<Site>, place: OwnedSemaphorePermit) {
    program::sockets::prepare(&stream);
    let service = service_fn(move |request| {
        let answer = site.answer(&request);
        tracing::debug!(
            method = %request.method(),
            path = request.uri().path(),
            status = answer.status().as_u16(),
            "answered"
        );
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection failed");
    }
    drop(place);
}
