//! One account of the memory that data takes, for the whole process.
//!
//! Whoever holds bytes of an image, or a window or table whose size an image chooses, holds a [`Held`] for them. What is
//! left are stacks, code and the state of libraries, which no image makes larger.

use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are held now.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// The most bytes that were held at once since the process began.
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Some memory in the account, as long as this lives.
#[derive(Debug, Default)]
pub struct Held(usize);

impl Held {
    /// Puts `bytes` into the account.
    pub fn new(bytes: usize) -> Self {
        let mut held = Self(0);
        held.set(bytes);
        held
    }

    /// It is `bytes` now.
    pub fn set(&mut self, bytes: usize) {
        let others = IN_USE.fetch_sub(self.0, Ordering::Relaxed).wrapping_sub(self.0);
        IN_USE.fetch_add(bytes, Ordering::Relaxed);
        PEAK.fetch_max(others.wrapping_add(bytes), Ordering::Relaxed);
        self.0 = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_memory_is_given_back() {
        // Other tests of this process hold memory too: only what is far above them can be told.
        const LARGE: usize = 1 << 40;
        let mut held = Held::new(LARGE);
        assert!(in_use() >= LARGE);
        held.set(2 * LARGE);
        drop(held);
        assert!(in_use() < LARGE);
        assert!(peak() >= 2 * LARGE);
    }
}
