//! Waits until other threads and processes have done something, but no longer than necessary.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The longest wait for anything: a bound against hanging, far above what the slowest machine
/// needs. Tests that are about time have their own bounds, and run alone.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Interval between two checks.
const POLL: Duration = Duration::from_millis(10);

/// Polls until `is_so` returns true. Fails the test with `complaint` after [`PATIENCE`].
#[track_caller]
pub fn until<D: Display>(complaint: impl Fn() -> D, mut is_so: impl FnMut() -> bool) {
    find(complaint, || is_so().then_some(()));
}

/// Polls until `probe` returns something, and returns that. Fails the test with `complaint` after
/// [`PATIENCE`].
#[track_caller]
pub fn find<T, D: Display>(complaint: impl Fn() -> D, mut probe: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {}", complaint());
        std::thread::sleep(POLL);
    }
}
