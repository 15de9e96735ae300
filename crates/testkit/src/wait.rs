//! Waits until other threads and processes have done something, but no longer than necessary.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Interval between two checks.
const POLL: Duration = Duration::from_millis(10);

/// Polls until `is_so` returns true. Fails the test with `complaint` after `patience`.
#[track_caller]
pub fn until<D: Display>(
    patience: Duration,
    complaint: impl Fn() -> D,
    mut is_so: impl FnMut() -> bool,
) {
    find(patience, complaint, || is_so().then_some(()));
}

/// Polls until `probe` returns something, and returns that. Fails the test with `complaint` after
/// `patience`.
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
