//! Events of a transfer. The data path knows this trait and no metrics library.

use std::sync::Arc;

use crate::facts::ImageFacts;

/// The phases of a transfer, named as CDI's importer names them in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The head of the source is looked at: layers, format, sizes.
    Info,
    /// Bytes flow from the source to the target.
    Transfer,
    /// The disk gets its final size.
    Resize,
    /// Everything is verified and on the disk.
    Complete,
}

/// Receives events from the threads of a transfer; every method must return at once.
pub trait Observer: Send + Sync {
    /// A new phase began.
    fn phase(&self, _phase: Phase) {}
    /// The image was recognised; comes once, before the first data byte.
    fn image(&self, _facts: &ImageFacts) {}
    /// `position` bytes of the source are consumed, of `total` if the source knows. Called per chunk.
    fn source_position(&self, _position: u64, _total: Option<u64>) {}
    /// The target has been written `bytes` so far. Called now and then.
    fn target_written(&self, _bytes: u64) {}
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

impl Unobserved {
    /// The shared form, as options hold it.
    pub fn shared() -> Arc<dyn Observer> {
        Arc::new(Self)
    }
}
