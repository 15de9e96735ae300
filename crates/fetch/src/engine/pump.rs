//! A task that fills a bridge with the bytes of a source.

use std::time::Duration;

use stream::bridge;
use stream::error::{SourceError, SourceErrorKind};
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
    stop: CancellationToken,
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
        let (sender, chunks) = bridge::channel(budget_bytes, &network.stop);
        let pumping = pump(sender);
        let left = CancellationToken::new();
        let (owner_left, stop) = (left.clone(), network.stop.clone());
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
        Self { chunks, task, stop: network.stop.clone(), _left: left.drop_guard() }
    }

    /// Waits for the result of the task. Must be called once, when there are no more chunks.
    pub(super) async fn join_task(&mut self) -> Result<(), SourceError> {
        let outcome = (&mut self.task).await.unwrap_or_else(|error| {
            let what = "the task that reads the source failed";
            Err(SourceError::with_context(SourceErrorKind::Io, what, error))
        });
        // A stop closes all bridges at once. Chunks are then lost although their task succeeded,
        // and a task that reads from another's bridge takes that for a broken connection.
        if self.stop.is_cancelled() { Err(stopped_error()) } else { outcome }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stream::bridge::BridgeSender;
    use tokio::runtime::Runtime;

    use super::*;

    #[test]
    fn whatever_a_task_returns_after_a_stop_is_reported_as_the_stop() {
        let runtime = Runtime::new().unwrap();
        let tls = testkit::certs::distrustful_client_config().unwrap();
        for outcome in [Ok(()), Err(SourceErrorKind::Io)] {
            let stop = CancellationToken::new();
            let network = Network::new(runtime.handle().clone(), stop.clone(), Arc::clone(&tls));
            let task_stop = stop.clone();
            let mut pump = BridgePump::start(&network, 1, |_sender: BridgeSender| async move {
                // The task ends by itself: the stop comes while it is not waiting.
                task_stop.cancel();
                outcome.map_err(|kind| SourceError::new(kind, "a connection ended too early"))
            });
            assert!(pump.chunks.recv().is_none());
            let error = runtime.block_on(pump.join_task()).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Stopped);
        }
    }
}
