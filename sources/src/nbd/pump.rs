//! The task that reads an export ahead of the data path, over one connection or several.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datapath::bridge;
use datapath::buffer::CHUNK_BYTES;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::target::is_known_zero;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::connection::Connection;
use super::download::Download;
use super::export::Export;
use crate::pumped::stopped;

/// Bytes that wait for their turn, of all connections together.
const WAITING_BYTES: usize = 8 << 20;

/// Longest segment of one connection before it is another one's turn.
const MAX_SEGMENT_BYTES: u64 = 4 << 20;

/// How long a server may take to hear goodbye.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Sends all bytes of `export` from `position` on. `first`, if given, is a connection that is open already.
pub(super) async fn pump(
    export: Arc<Export>,
    position: u64,
    first: Option<Connection>,
    sender: bridge::Sender,
) -> Result<(), SourceError> {
    if position == export.size {
        return Ok(());
    }
    if export.connections.get() > 1 {
        return pump_segments(&export, position, first, &sender).await;
    }
    let range = position..export.size;
    let mut download = Download::new(&export, std::iter::once(range), first, true);
    while let Some(bytes) = download.next().await? {
        if send(&sender, bytes).await.is_err() {
            break;
        }
    }
    leave(download).await;
    Ok(())
}

async fn send(sender: &bridge::Sender, bytes: Bytes) -> Result<(), bridge::Closed> {
    let held = if is_known_zero(&bytes) { 0 } else { CHUNK_BYTES };
    sender.send(bytes, held).await
}

/// Takes what was asked for and says goodbye. Servers are not always up to clients that go away in the middle: nbdkit 1.32
/// dies of it.
async fn leave<R: Iterator<Item = Range<u64>>>(download: Download<'_, R>) {
    if let Some(connection) = download.finish().await {
        connection.close(CLOSE_LIMIT).await;
    }
}

/// What one connection of several reads: every so-manieth segment.
struct Lane {
    chunks: mpsc::Receiver<Bytes>,
    task: JoinHandle<Result<(), SourceError>>,
}

impl Lane {
    fn start(
        export: &Arc<Export>,
        segments: impl Iterator<Item = Range<u64>> + Send + 'static,
        first: Option<Connection>,
    ) -> Self {
        let room = WAITING_BYTES / CHUNK_BYTES / export.connections;
        let (sender, chunks) = mpsc::channel(room.max(1));
        let reader = Arc::clone(export);
        let reading = async move {
            let mut download = Download::new(&reader, segments, first, true);
            while let Some(bytes) = download.next().await? {
                if sender.send(bytes).await.is_err() {
                    break;
                }
            }
            leave(download).await;
            Ok(())
        };
        let stop = export.stop.clone();
        let task = tokio::spawn(async move {
            stop.run_until_cancelled(reading)
                .await
                .unwrap_or_else(|| Err(stopped()))
        });
        Self { chunks, task }
    }

    /// The next bytes; there are some.
    async fn next(&mut self) -> Result<Bytes, SourceError> {
        if let Some(bytes) = self.chunks.recv().await {
            return Ok(bytes);
        }
        let ended = |cause: String| SourceError::new(SourceErrorKind::Io, cause);
        match (&mut self.task).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Err(ended("a connection to the NBD server ended too early".into())),
            Err(error) => Err(ended(format!("the task that reads the source failed: {error}"))),
        }
    }
}

/// The connections take turns: while a segment of one is handed over, the others read ahead.
async fn pump_segments(
    export: &Arc<Export>,
    position: u64,
    mut first: Option<Connection>,
    sender: &bridge::Sender,
) -> Result<(), SourceError> {
    let count = export.connections.get();
    let room = u64::try_from(WAITING_BYTES / count).unwrap_or(MAX_SEGMENT_BYTES);
    let segment_bytes = room.min(MAX_SEGMENT_BYTES);
    let end = export.size;
    let segments = move |from: u64| {
        let starts = std::iter::successors(Some(from), move |start| start.checked_add(segment_bytes));
        starts
            .take_while(move |start| *start < end)
            .map(move |start| start..start.saturating_add(segment_bytes).min(end))
    };
    let mut lanes: Vec<Lane> = (0..count)
        .map(|index| {
            Lane::start(
                export,
                segments(position).skip(index).step_by(count),
                first.take(),
            )
        })
        .collect();
    for (index, segment) in segments(position).enumerate() {
        let Some(lane) = lanes.get_mut(index % count) else {
            break;
        };
        let mut left = segment.end - segment.start;
        while left > 0 {
            let bytes = lane.next().await?;
            left = left.saturating_sub(bytes.len() as u64);
            if send(sender, bytes).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
