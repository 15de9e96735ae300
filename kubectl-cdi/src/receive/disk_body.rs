//! Decodes the stream of a reader pod, and appends it to the disk on this machine.

use std::sync::Arc;

use bytes::Bytes;
use codec::decode::{Codec, DecodeLimits, new_decoder};
use parking_lot::Mutex;
use program::threads;
use stream::chunks::ChunkStream;
use stream::error::Error;
use tokio::sync::mpsc;

use super::connection::{next_part, protocol};
use super::local::LocalDisk;
use crate::error::PluginError;
use crate::send::UploadWatch;

/// Number of parts that wait for the decoder, each of at most 256 KiB.
const WAITING_PARTS: usize = 32;

/// The received parts, for the decoder.
struct ReceivedParts(mpsc::Receiver<Bytes>);

impl ChunkStream for ReceivedParts {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.blocking_recv())
    }
}

/// Receives the rest of a disk of `size` bytes. Everything that arrived before a failure is
/// written.
pub(super) async fn receive_disk(
    mut body: hyper::body::Incoming,
    disk: &Arc<Mutex<LocalDisk>>,
    size: u64,
    watch: &Arc<UploadWatch>,
) -> Result<(), PluginError> {
    let (parts, waiting) = mpsc::channel(WAITING_PARTS);
    let (target, shown) = (Arc::clone(disk), Arc::clone(watch));
    let writing =
        threads::run_blocking(move || write_parts(waiting, &mut target.lock(), size, &shown));
    let received = loop {
        match next_part(&mut body).await {
            Ok(Some(part)) => {
                watch.add_stream_bytes(part.len() as u64);
                // The send fails if the writer has failed, which is reported below.
                if parts.send(part).await.is_err() {
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(parts);
    let written = writing.await.map_err(PluginError::internal)?;
    match (written, received) {
        // A full disk explains everything else.
        (Err(error), _) if !error.may_pass() => Err(error),
        // A broken connection explains why the decoder misses the end of a frame.
        (_, Err(error)) => Err(error),
        (written, Ok(())) => written,
    }
}

fn write_parts(
    waiting: mpsc::Receiver<Bytes>,
    disk: &mut LocalDisk,
    size: u64,
    watch: &UploadWatch,
) -> Result<(), PluginError> {
    let limits = DecodeLimits::default();
    let mut decoder = new_decoder(Codec::Zstd, Box::new(ReceivedParts(waiting)), &limits);
    let ended = loop {
        match decoder.next_chunk() {
            Ok(Some(bytes)) => {
                if bytes.len() as u64 > size - disk.position() {
                    break Err(protocol(&format!("more than the {size} bytes of the disk")));
                }
                if let Err(error) = disk.append(bytes) {
                    break Err(error);
                }
                watch.set_position(disk.position());
            }
            Ok(None) if disk.position() < size => {
                break Err(PluginError::passing("the stream ended early"));
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(PluginError::passing(error.to_string())),
        }
    };
    disk.settle()?;
    ended
}
