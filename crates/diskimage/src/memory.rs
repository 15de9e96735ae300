//! Memory that the map of an image may take, granted from outside: the map is not all that a transfer holds.

use crate::Error;

/// Grants memory to one image. What it holds is given back when this is dropped.
pub trait ImageMemory: Send {
    /// Bytes that the image may hold now, those that it holds already included.
    fn available_bytes(&self) -> u64;

    /// From now on the image holds `bytes`. False, and nothing changes, if that is more than is available.
    fn try_hold_bytes(&mut self, bytes: u64) -> bool;
}

/// A number of bytes for one image alone.
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

/// Bytes in which the account is kept: most changes of a map are smaller, and cost no call.
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

    /// Notes that the image holds `bytes`; to be called before it takes them.
    pub(crate) fn hold_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let wanted = bytes.next_multiple_of(STEP);
        // Less is told only when it is two steps less, or a map that breathes would tell at every breath.
        if wanted > self.held || wanted + 2 * STEP <= self.held {
            if !self.memory.try_hold_bytes(wanted) {
                return Err(self.limit_error());
            }
            self.held = wanted;
        }
        Ok(())
    }

    /// Bytes that may be taken beside `bytes`.
    pub(crate) fn available_beside(&self, bytes: u64) -> u64 {
        self.memory.available_bytes().saturating_sub(bytes)
    }

    /// The error for an image that needs more than is available.
    pub(crate) fn limit_error(&self) -> Error {
        Error::MapTooLarge { available: self.memory.available_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts how often it is told.
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
    fn small_changes_are_not_told() {
        let told = Arc::new(AtomicU64::new(0));
        let mut account = MemoryAccount::new(Counting(Arc::clone(&told)));
        for bytes in (0..=STEP).chain((0..=STEP).rev()) {
            account.hold_bytes(bytes).unwrap();
        }
        assert_eq!(told.load(Ordering::Relaxed), 1);
        account.hold_bytes(10 * STEP).unwrap();
        assert_eq!(account.hold_bytes(10 * STEP + 1), Err(Error::MapTooLarge { available: 10 * STEP }));
        account.hold_bytes(0).unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 4);
    }
}
