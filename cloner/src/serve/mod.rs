//! Serves a volume over HTTP on this pod's loopback. `kubectl cdi download` reaches it through a
//! port-forward.
//!
//! ```text
//!  disk ─► checkpoints ─► answer ─► port-forward ─► kubectl cdi download
//!            CRC of each prefix     zstd frames without zeros, or checkpoints
//! ```
//!
//! There is no TLS and no token: only processes of this pod reach its loopback, and the API server
//! decides who may forward a port to it.

mod answer;
mod checkpoints;

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use stream::error::errno_text;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use self::checkpoints::CheckpointTable;
use crate::source::{DeviceSource, VolumeReadError};

/// Maximum number of simultaneous connections. The client uses one; connections that it has lost
/// may linger.
const MAX_CONNECTIONS: usize = 8;

/// Time limit for receiving a request header. It includes the time between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval at which the server checks whether it is still needed.
const LOOK: Duration = Duration::from_millis(500);

/// Time without activity after which the server ends once a client has verified the whole disk.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Reasons why a volume cannot be served any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Source(#[from] VolumeReadError),
    #[error("cannot listen on 127.0.0.1:{port}: {}", errno_text(cause))]
    Listen { port: u16, cause: io::Error },
    #[error("no client for {} s", .0.as_secs())]
    Idle(Duration),
}

/// A disk that is served, and what is known about it.
struct ServedVolume {
    disk: DeviceSource,
    checkpoints: CheckpointTable,
    activity: Activity,
    /// The message about a part of the disk that cannot be read.
    failure: Mutex<Option<String>>,
}

/// The last activity of a client.
struct Activity(Mutex<ActivityState>);

struct ActivityState {
    last: Instant,
    /// True once a client has received the checkpoint of the whole disk.
    is_complete: bool,
}

impl Activity {
    fn note(&self) {
        self.0.lock().last = Instant::now();
    }

    fn note_complete(&self) {
        self.0.lock().is_complete = true;
    }

    /// Waits until no client has been active for `idle`. Returns true if one has verified the
    /// whole disk before.
    async fn wait_for_end(&self, idle: Duration) -> bool {
        loop {
            {
                let state = self.0.lock();
                let limit = if state.is_complete { idle.min(LAST_WORDS) } else { idle };
                if state.last.elapsed() >= limit {
                    return state.is_complete;
                }
            }
            sleep(LOOK).await;
        }
    }
}

/// Serves the disk at `path` on `port` of 127.0.0.1 until a client has verified the whole disk, or
/// until no client has been active for `idle`.
pub(crate) async fn serve_volume(path: &Path, port: u16, idle: Duration) -> Result<(), ServeError> {
    let disk = DeviceSource::open(path)?;
    let listen = |cause| ServeError::Listen { port, cause };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    tracing::info!("serving {} with {} bytes on {address}", path.display(), disk.size());
    let volume = Arc::new(ServedVolume {
        disk,
        checkpoints: CheckpointTable::default(),
        activity: Activity(Mutex::new(ActivityState { last: Instant::now(), is_complete: false })),
        failure: Mutex::new(None),
    });
    tokio::select! {
        () = accept_connections(&listener, &volume) => Ok(()),
        is_complete = volume.activity.wait_for_end(idle) => match is_complete {
            true => Ok(()),
            false => Err(ServeError::Idle(idle)),
        },
    }
}

async fn accept_connections(listener: &TcpListener, volume: &Arc<ServedVolume>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let volume = Arc::clone(volume);
                tokio::spawn(async move {
                    serve_connection(stream, &volume).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, volume: &Arc<ServedVolume>) {
    program::sockets::prepare_socket(&stream);
    let service = service_fn(|request| {
        let answer = answer::answer_request(volume, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!("the connection failed: {error}");
    }
}
