//! Network block devices: disks of `qemu-nbd`, `nbdkit` and their kind, holes left out, several requests on their way.
//!
//! ```text
//!  NbdSource ── open: connect, negotiate ──► Export (size) + the first Connection
//!     ├─ body() ─► PumpedBody ─bridge─ pump ─► Download ─► Connection   continued on a new one after each failure
//!     └─ read_range() ──────────────────────── Download ─► Connection   another one, kept for the next range
//! ```
//!
//! An export has no validator: that it is still the same after a connection broke, only its size tells.

mod agreement;
mod assembly;
mod connection;
mod download;
mod export;
mod extents;
mod negotiation;
mod pump;
mod stream;
mod uri;
mod wire;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use datapath::buffer::Pool;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::connection::Connection;
use self::download::Download;
use self::export::{Export, Server};
pub use self::uri::NbdUri;
use super::access::Access;
use super::pumped::{Pump, PumpedBody, stopped};
use super::retry::Patience;

/// Memory that is reserved at once for a range; more follows the bytes that really arrive.
const RESERVED_BYTES: u64 = 1 << 20;

/// An export whose first connection is open. All methods block; do not call them inside an asynchronous task.
pub struct NbdSource {
    export: Arc<Export>,
    handle: Handle,
    /// For the body.
    first: Mutex<Option<Connection>>,
    /// For ranges, one at a time.
    second: Mutex<Option<Connection>>,
}

impl NbdSource {
    /// Connects to the export that `uri` names (see [`NbdUri::parse`]) and agrees with the server on how to read it.
    pub fn open(
        uri: &str,
        access: &Access,
        handle: Handle,
        stop: CancellationToken,
    ) -> Result<Self, SourceError> {
        Self::at(NbdUri::parse(uri)?, access, handle, stop)
    }

    /// Connects to the export at `uri`.
    pub fn at(
        uri: NbdUri,
        access: &Access,
        handle: Handle,
        stop: CancellationToken,
    ) -> Result<Self, SourceError> {
        let server = Server {
            uri,
            tls: Arc::clone(&access.tls),
            patience: Patience::new(access.no_progress_limit, access.retries),
            pool: Pool::default(),
        };
        let connecting = server.first_connection();
        let connection = handle
            .block_on(stop.run_until_cancelled(connecting))
            .unwrap_or_else(|| Err(stopped()))?;
        let agreement = connection.agreement();
        let connections = if agreement.multi_conn {
            access.connections
        } else {
            NonZeroUsize::MIN
        };
        Ok(Self {
            export: Arc::new(Export {
                server,
                size: agreement.size,
                connections,
                stop,
            }),
            handle,
            first: Mutex::new(Some(connection)),
            second: Mutex::new(None),
        })
    }

    async fn collect(
        &self,
        range: Range<u64>,
        connection: &mut Option<Connection>,
    ) -> Result<Bytes, SourceError> {
        let length = range.end - range.start;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let mut download = Download::new(&self.export, std::iter::once(range), connection.take(), false);
        let mut bytes = BytesMut::with_capacity(usize::try_from(length.min(RESERVED_BYTES)).unwrap_or(0));
        while let Some(chunk) = download.next().await? {
            bytes.extend_from_slice(&chunk);
        }
        *connection = download.finish().await;
        Ok(bytes.freeze())
    }
}

impl Source for NbdSource {
    fn name(&self) -> String {
        self.export.server.uri.to_string()
    }

    fn length(&self) -> Option<u64> {
        Some(self.export.size)
    }

    fn is_ranged(&self) -> bool {
        true
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (export, handle) = (Arc::clone(&self.export), self.handle.clone());
        let start = move |position: u64| {
            let (export, first) = (Arc::clone(&export), first.take());
            let stop = export.stop.clone();
            Pump::start(&handle, &stop, |sender| {
                pump::pump(export, position, first, sender)
            })
        };
        Ok(Box::new(PumpedBody::new(
            self.handle.clone(),
            self.export.size,
            start,
        )))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let length = self.export.size;
        if range.start > range.end || range.end > length {
            let message = format!(
                "bytes {} to {} are not within {length} bytes",
                range.start, range.end
            );
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        let mut connection = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        self.handle
            .block_on(
                self.export
                    .stop
                    .run_until_cancelled(self.collect(range, &mut connection)),
            )
            .unwrap_or_else(|| Err(stopped()))
    }
}
