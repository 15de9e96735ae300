//! Returns the memory of the process to the system between two uploads.

use stream::buffer;

#[cfg(feature = "jemalloc")]
pub(crate) use self::jemalloc::without_background_thread;

/// Returns memory that the last upload has freed to the system before the next upload can begin:
/// the chunks of the buffer pool, and the free pages of the allocator.
pub(crate) fn give_back() {
    buffer::give_back();
    #[cfg(feature = "jemalloc")]
    jemalloc::give_back();
}

/// Runs `work`. Without jemalloc, no thread has to be stopped.
#[cfg(not(feature = "jemalloc"))]
pub(crate) fn without_background_thread<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(feature = "jemalloc")]
mod jemalloc {
    use std::thread;
    use std::time::Duration;

    use tikv_jemalloc_ctl::{Access, AsName, arenas, background_thread};
    use volume::limits;

    /// Number of attempts, and the pause between two attempts.
    const TRIES: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(10);

    /// Returns the free pages of the allocator. By itself, it takes a second to return them
    /// (`.cargo/config.toml`).
    pub(super) fn give_back() {
        // While one thread returns pages, a call from a second thread does nothing. The
        // allocator's background thread returns pages continuously, so it is stopped here.
        background_thread::write(false).ok();
        for _ in 0..TRIES {
            give_back_pages();
            if limits::left_bytes() == 0 {
                return;
            }
            thread::sleep(PAUSE);
        }
        tracing::debug!("{} bytes of memory are left of the upload", limits::left_bytes());
    }

    /// Runs `work` while the allocator has no thread of its own. Landlock restricts only threads
    /// that start later.
    pub(crate) fn without_background_thread<T>(work: impl FnOnce() -> T) -> T {
        background_thread::write(false).ok();
        let done = work();
        background_thread::write(true).ok();
        done
    }

    fn give_back_pages() {
        let count = arenas::narenas::read().unwrap_or(0);
        for number in 0..count {
            // With a decay time of zero, all free pages are returned before the call ends
            // (jemalloc(3), `arena.<i>.dirty_decay_ms`). `arena.<i>.purge` does the same, but
            // calling it requires `unsafe` code. For an arena that no thread has used yet, the
            // call fails.
            let name = format!("arena.{number}.dirty_decay_ms\0");
            let decay_ms = name.as_str().name();
            if let Ok(before) = decay_ms.update(0_isize) {
                decay_ms.write(before).ok();
            }
        }
    }
}
