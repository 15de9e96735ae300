//! A task that fills a bridge with the bytes of a source.

use std::time::Duration;

use datapath::bridge;
use datapath::error::{SourceError, SourceErrorKind};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

use crate::error::stopped_error;
use crate::network::Network;

/// Longest time for a task to disconnect cleanly from its server when its bytes are no longer
/// wanted. nbdkit 1.32 dies when a client disconnects in the middle of its work.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The receiving end of a bridge and the task that fills it. The task ends soon after this value
/// is dropped.
pub(super) struct BridgePump {
    pub(super) chunks: bridge::BridgeReceiver,
    task: JoinHandle<Result<(), SourceError>>,
    _left: DropGuard,
}

impl BridgePump {
    /// Spawns the future that `pump` creates from the sending end. The bridge buffers at most
    /// `budget_bytes`. The task ends when the network is stopped.
    pub(super) fn start<F>(
        network: &Network,
        budget_bytes: usize,
        pump: impl FnOnce(bridge::BridgeSender) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), SourceError>> + Send + 'static,
    {
        let stop = network.stop.clone();
        let (sender, chunks) = bridge::channel(budget_bytes, &stop);
        let pumping = pump(sender);
        let left = CancellationToken::new();
        let owner_left = left.clone();
        let reading = async move {
            // The task is not aborted at once: it notices by itself that its bridge is closed, and
            // gets time to disconnect cleanly.
            let too_late = async {
                owner_left.cancelled().await;
                tokio::time::sleep(LEAVE_LIMIT).await;
            };
            tokio::select! {
                outcome = pumping => outcome,
                () = stop.cancelled() => Err(stopped_error()),
                () = too_late => Ok(()),
            }
        };
        let task = network.handle.spawn(reading.instrument(network.span.clone()));
        Self { chunks, task, _left: left.drop_guard() }
    }

    /// Waits for the result of the task. Must be called once, when there are no more chunks.
    pub(super) async fn join_task(&mut self) -> Result<(), SourceError> {
        (&mut self.task).await.unwrap_or_else(|error| {
            let what = "the task that reads the source failed";
            Err(SourceError::with_context(SourceErrorKind::Io, what, error))
        })
    }
}
