//! The task that reads the network ahead of the data path.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use datapath::bridge::{self, Closed};
use datapath::buffer::Pool;
use datapath::error::SourceError;
use datapath::pack::Packer;
use datapath::target::ZEROS;
use reqwest::Response;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::body::{Surroundings, stopped};
use super::download::{Download, Object};
use super::regions::{Piece, Regions};
use super::segments::Segments;

/// How long a chunk that is not full waits for more.
const PACK_WAIT: Duration = Duration::from_millis(10);

/// The task that fills the bridge; ends with its owner.
pub(super) struct Pump {
    pub(super) chunks: bridge::Receiver,
    pub(super) task: JoinHandle<Result<(), SourceError>>,
}

/// Why reading ends early.
enum End {
    /// Nobody wants more.
    Closed,
    Failed(SourceError),
}

impl From<Closed> for End {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl Pump {
    /// Reads from `position` on. `first`, if given, is a fresh response for all of the object.
    pub(super) fn start(
        surroundings: &Surroundings,
        position: u64,
        first: Option<Response>,
        is_ranged: bool,
    ) -> Self {
        let (sender, chunks) = bridge::channel(surroundings.bridge_budget_bytes, surroundings.stop.clone());
        let segments = Segments::new(surroundings, position, is_ranged);
        let Surroundings {
            object,
            stop,
            pool,
            regions,
            ..
        } = surroundings.clone();
        let regions = regions.filter(|_| is_ranged);
        let task = surroundings.handle.spawn(async move {
            let pumping = async {
                if let Some(segments) = segments {
                    return segments.pump(first, sender).await;
                }
                let line = Line {
                    object: &object,
                    pool,
                    sender,
                };
                let end = match regions {
                    Some(regions) => line.read_regions(&regions, position, first).await,
                    None => {
                        line.read(Download::from(&object, position, first), position, u64::MAX)
                            .await
                    }
                };
                match end {
                    Ok(()) => Ok(()),
                    // The body was dropped, and does not ask for the outcome, or it was stopped, which is no end.
                    Err(End::Closed) => Err(stopped()),
                    Err(End::Failed(error)) => Err(error),
                }
            };
            stop.run_until_cancelled(pumping)
                .await
                .unwrap_or_else(|| Err(stopped()))
        });
        Self { chunks, task }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One connection after the other, and the bridge that what they bring goes over.
struct Line<'a> {
    object: &'a Object,
    pool: Pool,
    sender: bridge::Sender,
}

impl Line<'_> {
    /// From `position` to the end of an object that has a length, without its large holes.
    async fn read_regions(
        &self,
        regions: &Regions,
        mut position: u64,
        mut first: Option<Response>,
    ) -> Result<(), End> {
        let length = self.object.identity.length().unwrap_or(0);
        while let Some(piece) = regions.piece(position, length, u64::MAX) {
            match piece {
                Piece::Zeros(length) => {
                    send_zeros(length, &self.sender).await?;
                    position += length;
                }
                Piece::Data(range) => {
                    let download = match first.take().filter(|_| range.start == 0) {
                        Some(first) => Download::from(self.object, 0, Some(first)),
                        None => Download::within(self.object, range.clone()),
                    };
                    self.read(download, range.start, range.end - range.start).await?;
                    position = range.end;
                }
            }
        }
        Ok(())
    }

    /// Hands over what `download` brings, `most` bytes at most; it is at `position`.
    async fn read(&self, mut download: Download<'_>, position: u64, most: u64) -> Result<(), End> {
        let mut packer = Packer::new(self.pool.clone(), position);
        let mut left = most;
        while left > 0 {
            let mut next = pin!(download.next());
            // A fast source fills chunks; what a slow one has sent does not wait for them.
            let received = match timeout(PACK_WAIT, &mut next).await {
                Ok(received) => received,
                Err(_) => {
                    packer.flush();
                    self.hand_over(&mut packer).await?;
                    next.await
                }
            };
            // What came before an error is good.
            match received {
                Ok(Some(chunk)) => {
                    let wanted = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
                    packer.push(&chunk[..wanted]);
                    left -= wanted as u64;
                }
                Ok(None) => break,
                Err(error) => {
                    packer.flush();
                    self.hand_over(&mut packer).await?;
                    return Err(End::Failed(error));
                }
            }
            self.hand_over(&mut packer).await?;
        }
        packer.flush();
        Ok(self.hand_over(&mut packer).await?)
    }

    async fn hand_over(&self, packer: &mut Packer) -> Result<(), Closed> {
        while let Some(packed) = packer.pop() {
            self.sender.send(packed.bytes, packed.held).await?;
        }
        Ok(())
    }
}

/// Hands over zeros that nobody sent.
pub(super) async fn send_zeros(mut length: u64, sender: &bridge::Sender) -> Result<(), Closed> {
    while length > 0 {
        let step = usize::try_from(length).map_or(ZEROS.len(), |length| length.min(ZEROS.len()));
        sender.send(Bytes::from_static(&ZEROS[..step]), 0).await?;
        length -= step as u64;
    }
    Ok(())
}
