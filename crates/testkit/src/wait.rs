//! Waiting for what other threads and processes do, no longer than it takes.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The time between two looks.
const POLL: Duration = Duration::from_millis(10);

/// Looks until `is_so`. Fails the test with `complaint` after `patience`.
#[track_caller]
pub fn until<D: Display>(patience: Duration, complaint: impl Fn() -> D, mut is_so: impl FnMut() -> bool) {
    find(patience, complaint, || is_so().then_some(()));
}

/// Looks until `probe` finds something, and returns it. Fails the test with `complaint` after `patience`.
#[track_caller]
pub fn find<T, D: Display>(
    patience: Duration,
    complaint: impl Fn() -> D,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(started.elapsed() < patience, "not within {patience:?}: {}", complaint());
        std::thread::sleep(POLL);
    }
}
