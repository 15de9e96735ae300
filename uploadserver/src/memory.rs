//! The memory of the process between two uploads.

use std::thread;
use std::time::Duration;

use datapath::buffer;
use tikv_jemalloc_ctl::{Access, AsName, arenas, background_thread};
use volume::limits;

/// Tries, and the time between two.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Gives the memory that an upload has left free back to the system before the next one can
/// begin: chunks, and free pages of the allocator. By itself the allocator takes a second for
/// that (`.cargo/config.toml`).
pub(crate) fn give_back() {
    buffer::give_back();
    // Where one thread gives pages back, a second one does nothing. The allocator's own thread,
    // which is always at it, ends here.
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

fn give_back_pages() {
    let count = arenas::narenas::read().unwrap_or(0);
    for number in 0..count {
        // With a decay time of zero all free pages go back before the call returns (jemalloc(3),
        // `arena.<i>.dirty_decay_ms`). There is `arena.<i>.purge` for the same, which only
        // `unsafe` code can call. An arena that no thread has used yet is an error.
        let name = format!("arena.{number}.dirty_decay_ms\0");
        let decay_ms = name.as_str().name();
        if let Ok(before) = decay_ms.update(0_isize) {
            decay_ms.write(before).ok();
        }
    }
}
