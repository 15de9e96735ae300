//! Serves the disk, from finding it in the image until the importer is done.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use program::paths::PodPaths;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::answer::ServedContent;
use crate::disk::ServedDisk;
use crate::handoff::{self, ReadyFile};

/// Maximum number of simultaneous connections. The importer needs only a few; further ones wait
/// until another connection ends.
const MAX_CONNECTIONS: usize = 64;

/// Time limit for receiving a request header. It includes the time between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of the server: the disk to serve, and the files that signal its progress.
pub(crate) struct ServeConfig {
    pub(crate) port: u16,
    pub(crate) image_dir: PathBuf,
    pub(crate) ready_file: PathBuf,
    pub(crate) done_file: PathBuf,
    pub(crate) paths: PodPaths,
    pub(crate) environment: Vec<(String, String)>,
}

/// Serves the disk until the importer is done, and returns true, or until `stop` is cancelled. The
/// error is the reason why nothing can be served.
pub(crate) async fn run(config: &ServeConfig, stop: &CancellationToken) -> Result<bool, String> {
    let disk = ServedDisk::find_disk(&config.image_dir, &config.paths)?;
    let listen =
        |error: io::Error| format!("Failed listening on localhost:{}: {error}", config.port);
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await.map_err(listen)?;
    let port = socket.local_addr().map_err(listen)?.port();
    // `localhost` may resolve to either address. In a pod without IPv6, only the first one can be
    // used.
    let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
    let ready = ReadyFile::announce_disk(&config.ready_file, &disk.name).map_err(|error| {
        format!("Failed creating \"ready\" file {}: {error}", config.ready_file.display())
    })?;
    tracing::info!(
        "Serving {} on HTTP port: {port}",
        config.image_dir.join(String::from_utf8_lossy(&disk.name).as_ref()).display()
    );
    let site = Arc::new(ServedContent::new(disk, &config.environment));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for socket in second.into_iter().chain([socket]) {
        tokio::spawn(accept_connections(socket, Arc::clone(&site), Arc::clone(&places)));
    }
    let done = stop.run_until_cancelled(handoff::wait_for_done(&config.done_file)).await;
    drop(ready);
    Ok(done.is_some())
}

async fn accept_connections(socket: TcpListener, site: Arc<ServedContent>, places: Arc<Semaphore>) {
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match socket.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(&site), place));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    site: Arc<ServedContent>,
    place: OwnedSemaphorePermit,
) {
    program::sockets::prepare_socket(&stream);
    let service = service_fn(move |request| {
        let answer = site.answer_request(&request);
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
