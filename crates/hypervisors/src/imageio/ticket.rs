//! Keeps the ticket of a transfer valid. A ticket expires unless data is read, and a slow target
//! disk may keep the importer from reading.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fetch::http::{HttpAgent, HttpConfig};
use parking_lot::Mutex;
use stream::error::SourceError;
use stream::source::SourceBody;
use tokio::task::JoinHandle;

use super::transfer::ActiveTransfer;

/// Idle time after which the ticket is extended: half of what the engine allows.
const SILENCE: Duration = Duration::from_secs(30);

/// Range that is read so that the image server notices activity: one sector.
const TOUCH_RANGE: &str = "bytes=0-511";

/// Records when data was last read.
#[derive(Debug)]
pub(super) struct ReadActivity(Mutex<Instant>);

impl Default for ReadActivity {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl ReadActivity {
    /// Records that data was read just now.
    pub(super) fn mark_read(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Returns the time since data was last read.
    fn idle_time(&self) -> Duration {
        self.0.lock().elapsed()
    }
}

/// The body of a disk, which is read once.
pub(super) struct ImageIoBody {
    pub(super) data: Box<dyn SourceBody>,
    pub(super) progress: Arc<ReadActivity>,
}

impl SourceBody for ImageIoBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.progress.mark_read();
        self.data.next_chunk()
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.data.skip_to(offset)
    }
}

/// Keeps a ticket valid until this value is dropped.
pub(super) struct TicketKeeper {
    task: JoinHandle<()>,
}

impl TicketKeeper {
    /// Starts a task that extends the ticket whenever nothing was read for 30 s.
    pub(super) fn start_renewal(
        transfer: Arc<ActiveTransfer>,
        data: HttpConfig,
        progress: Arc<ReadActivity>,
    ) -> Self {
        let task = data.network.handle.clone().spawn(async move {
            loop {
                let left = SILENCE.saturating_sub(progress.idle_time());
                if !left.is_zero() {
                    tokio::time::sleep(left).await;
                    continue;
                }
                tracing::debug!("nothing was read for 30 s, extending the image transfer");
                if let Err(error) = transfer.extend_transfer().await {
                    tracing::warn!("cannot extend the image transfer: {error}");
                }
                touch_ticket(&data).await;
                progress.mark_read();
            }
        });
        Self { task }
    }
}

impl Drop for TicketKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads a little data, because the engine asks the image server when the data was last read.
async fn touch_ticket(data: &HttpConfig) {
    let touched = async {
        let agent = HttpAgent::new(&data.network, &data.user_agent)?;
        let request = agent
            .build_request(http::Method::GET, data.url.clone())
            .header(http::header::RANGE, TOUCH_RANGE);
        agent.send(request, 1 << 10).await
    };
    if let Err(error) = touched.await {
        tracing::debug!("cannot touch the image: {error}");
    }
}
