//! Limits the memory that the map of an image may take. The caller grants the memory, because a
//! transfer holds more than the map.

use crate::Error;

/// Longest head that is ever requested. A VHDX may store its virtual size after its log, wherever
/// the log ends.
pub const MAX_HEAD_BYTES: usize = 16 << 20;

/// Grants memory to one image. Dropping it returns the memory that the image holds.
pub trait ImageMemory: Send {
    /// Bytes that the image may hold now, including those that it already holds.
    fn available_bytes(&self) -> u64;

    /// Records that the image now holds `bytes` in total. Returns false, and changes nothing, if
    /// more than the available bytes would be held.
    fn try_hold_bytes(&mut self, bytes: u64) -> bool;
}

/// A fixed limit in bytes for a single image.
#[derive(Debug, Clone, Copy)]
pub struct ImageMemoryLimit(pub u64);

impl ImageMemory for ImageMemoryLimit {
    fn available_bytes(&self) -> u64 {
        self.0
    }

    fn try_hold_bytes(&mut self, bytes: u64) -> bool {
        bytes <= self.0
    }
}

/// Granularity of the account in bytes. Most changes of a map are smaller and need no call to
/// [`ImageMemory`].
const STEP: u64 = 64 << 10;

/// The part of the granted memory that one image holds.
pub(crate) struct MemoryAccount {
    memory: Box<dyn ImageMemory>,
    held: u64,
}

impl MemoryAccount {
    pub(crate) fn new(memory: impl ImageMemory + 'static) -> Self {
        Self { memory: Box::new(memory), held: 0 }
    }

    /// Records that the image holds `bytes` in total. Must be called before the memory is
    /// allocated. Fails if less is available.
    pub(crate) fn hold_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let wanted = bytes.next_multiple_of(STEP);
        // A decrease is reported only when it reaches two steps. Otherwise a map whose size varies
        // around the edge of a step would cause a call for every change.
        if wanted > self.held || wanted + 2 * STEP <= self.held {
            if !self.memory.try_hold_bytes(wanted) {
                return Err(self.limit_error());
            }
            self.held = wanted;
        }
        Ok(())
    }

    /// Bytes that may be allocated in addition to `bytes`.
    pub(crate) fn available_beside(&self, bytes: u64) -> u64 {
        self.memory.available_bytes().saturating_sub(bytes)
    }

    /// Returns the error for an image that needs more memory than is available.
    pub(crate) fn limit_error(&self) -> Error {
        Error::MapTooLarge { available: self.memory.available_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts the calls of `try_hold_bytes`.
    struct Counting(Arc<AtomicU64>);

    impl ImageMemory for Counting {
        fn available_bytes(&self) -> u64 {
            10 * STEP
        }

        fn try_hold_bytes(&mut self, bytes: u64) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            bytes <= self.available_bytes()
        }
    }

    #[test]
    fn small_changes_are_not_reported() {
        let told = Arc::new(AtomicU64::new(0));
        let mut account = MemoryAccount::new(Counting(Arc::clone(&told)));
        for bytes in (0..=STEP).chain((0..=STEP).rev()) {
            account.hold_bytes(bytes).unwrap();
        }
        assert_eq!(told.load(Ordering::Relaxed), 1);
        account.hold_bytes(10 * STEP).unwrap();
        assert_eq!(
            account.hold_bytes(10 * STEP + 1),
            Err(Error::MapTooLarge { available: 10 * STEP })
        );
        account.hold_bytes(0).unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 4);
    }
}
