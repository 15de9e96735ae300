//! Serves a volume over HTTP on this pod's loopback. `kubectl cdi download` reaches it through a
//! port-forward.
//!
//! ```text
//!  disk ─► checksums ─► answer ─► port-forward ─► kubectl cdi download
//!            CRC of each prefix     zstd frames without zeros, or checksums
//! ```
//!
//! There is no TLS and no token: only processes of this pod reach its loopback, and the API server
//! decides who may forward a port to it.

mod answer;
mod prefixes;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use program::local_http::serve_http;
use stream::error::errno_text;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use self::prefixes::PrefixTable;
use crate::source::{DeviceSource, VolumeReadError};

/// Maximum number of simultaneous connections. The client uses one; connections that it has lost
/// may linger.
const MAX_CONNECTIONS: usize = 8;

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
    prefixes: PrefixTable,
    activity: Activity,
    /// The message about a part of the disk that cannot be read.
    failure: Mutex<Option<String>>,
}

/// The last activity of a client.
struct Activity(Mutex<ActivityState>);

struct ActivityState {
    last: Instant,
    /// True once a client has received the checksum of the whole disk.
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
        prefixes: PrefixTable::default(),
        activity: Activity(Mutex::new(ActivityState { last: Instant::now(), is_complete: false })),
        failure: Mutex::new(None),
    });
    let (served, places) = (Arc::clone(&volume), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    tokio::select! {
        () = serve_http(listener, places, move |request| answer::answer_request(&served, request)) => Ok(()),
        is_complete = volume.activity.wait_for_end(idle) => match is_complete {
            true => Ok(()),
            false => Err(ServeError::Idle(idle)),
        },
    }
}
