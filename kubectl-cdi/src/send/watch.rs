//! A running upload as others see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// Time between two looks at a stream that may have stopped.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of an upload.
#[derive(Debug)]
pub(crate) struct UploadWatch {
    image_bytes: AtomicU64,
    handed_over: AtomicU64,
    /// What is being waited for.
    waiting: Mutex<Option<String>>,
    /// Time at which something moved last.
    moved: Mutex<Instant>,
}

impl Default for UploadWatch {
    fn default() -> Self {
        Self {
            image_bytes: AtomicU64::new(0),
            handed_over: AtomicU64::new(0),
            waiting: Mutex::new(None),
            moved: Mutex::new(Instant::now()),
        }
    }
}

impl UploadWatch {
    /// Bytes of the image whose sending has begun.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.image_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were handed to the network, those that were sent again included.
    pub(crate) fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// What is being waited for, if anything is.
    pub(crate) fn wait_reason(&self) -> Option<String> {
        self.waiting.lock().clone()
    }

    /// Something is being waited for.
    pub(crate) fn set_wait_reason(&self, what: impl Into<String>) {
        *self.waiting.lock() = Some(what.into());
    }

    /// A piece at this place of the image is sent.
    pub(crate) fn set_position(&self, image_offset: u64) {
        self.image_bytes.store(image_offset, Ordering::Relaxed);
    }

    /// So many bytes were handed to the network.
    pub(crate) fn add_sent_bytes(&self, bytes: u64) {
        self.handed_over.fetch_add(bytes, Ordering::Relaxed);
        self.note_activity();
        self.waiting.lock().take();
    }

    /// Something begins that may stop.
    pub(crate) fn note_activity(&self) {
        *self.moved.lock() = Instant::now();
    }

    /// Ready when nothing has moved for so long.
    pub(crate) async fn wait_for_stall(&self, patience: Duration) {
        loop {
            let moved = *self.moved.lock();
            if moved.elapsed() >= patience {
                return;
            }
            sleep(LOOK).await;
        }
    }
}
