//! The task that reads the network ahead of the data path.

use std::pin::pin;
use std::time::Duration;

use datapath::bridge;
use datapath::buffer::Pool;
use datapath::error::SourceError;
use datapath::pack::Packer;
use reqwest::Response;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::body::{Surroundings, stopped};
use super::download::{Download, Object};
use super::segments::Segments;

/// How long a chunk that is not full waits for more.
const PACK_WAIT: Duration = Duration::from_millis(10);

/// The task that fills the bridge; ends with its owner.
pub(super) struct Pump {
    pub(super) chunks: bridge::Receiver,
    pub(super) task: JoinHandle<Result<(), SourceError>>,
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
            object, stop, pool, ..
        } = surroundings.clone();
        let task = surroundings.handle.spawn(async move {
            let pumping = async {
                match segments {
                    Some(segments) => segments.pump(first, sender).await,
                    None => pump(&object, position, first, pool, sender).await,
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

async fn pump(
    object: &Object,
    position: u64,
    first: Option<Response>,
    pool: Pool,
    sender: bridge::Sender,
) -> Result<(), SourceError> {
    let mut download = Download::from(object, position, first);
    let mut packer = Packer::new(pool, position);
    loop {
        let mut next = pin!(download.next());
        // A fast source fills chunks; what a slow one has sent does not wait for them.
        let received = match timeout(PACK_WAIT, &mut next).await {
            Ok(received) => received,
            Err(_) => {
                packer.flush();
                if hand_over(&mut packer, &sender).await.is_err() {
                    return Ok(());
                }
                next.await
            }
        };
        // What came before an error is good.
        let end = match received {
            Ok(Some(chunk)) => {
                packer.push(&chunk);
                None
            }
            Ok(None) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        if end.is_some() {
            packer.flush();
        }
        if hand_over(&mut packer, &sender).await.is_err() {
            return Ok(());
        }
        if let Some(end) = end {
            return end;
        }
    }
}

async fn hand_over(packer: &mut Packer, sender: &bridge::Sender) -> Result<(), bridge::Closed> {
    while let Some(packed) = packer.pop() {
        sender.send(packed.bytes, packed.held).await?;
    }
    Ok(())
}
