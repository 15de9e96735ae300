//! The ticket of a transfer: it expires unless somebody reads, and a slow disk may keep us from reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::transfer::Shared;
use crate::source::http::{Agent, HttpConfig};

/// Silence after which the ticket is extended: half of what the engine allows.
const SILENCE: Duration = Duration::from_secs(30);

/// Bytes that are read for the image server to notice us: one sector.
const TOUCH_RANGE: &str = "bytes=0-511";

/// Counts signs of life.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicU64);

impl Progress {
    /// Something was read.
    pub(super) fn advanced(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Keeps a ticket until it is dropped.
pub(super) struct Ticket {
    task: JoinHandle<()>,
}

impl Ticket {
    /// Looks every 30 s whether anything was read, and extends the ticket when not.
    pub(super) fn keep(
        runtime: &Handle,
        transfer: Arc<Shared>,
        data: HttpConfig,
        progress: Arc<Progress>,
    ) -> Self {
        let task = runtime.spawn(async move {
            let mut seen = progress.value();
            loop {
                tokio::time::sleep(SILENCE).await;
                if progress.value() == seen {
                    tracing::debug!("nothing was read for 30 s, extending the image transfer");
                    if let Err(error) = transfer.extend().await {
                        tracing::warn!("cannot extend the image transfer: {error}");
                    }
                    touch(&data).await;
                }
                seen = progress.value();
            }
        });
        Self { task }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The engine asks the image server when the data was last read.
async fn touch(data: &HttpConfig) {
    let touched = async {
        let agent = Agent::of(data)?;
        let request = agent
            .request(http::Method::GET, data.url.clone())
            .header(http::header::RANGE, TOUCH_RANGE);
        agent.send(request, 1 << 10).await
    };
    if let Err(error) = touched.await {
        tracing::debug!("cannot touch the image: {error}");
    }
}
