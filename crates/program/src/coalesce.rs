//! Reduces how often threads that serve sockets wake up, similar to interrupt coalescing in
//! network cards.
//!
//! A thread that is faster than its peers goes to sleep and is woken again for each of their
//! packets: 34,000 times for a raw import of 4 GiB. A thread that was busy since its last wake-up
//! therefore pauses briefly before it looks for more work. Median CPU times for such a disk: 1.54
//! s for an import (9 runs), 1.69 s for an upload over HTTP/1.1 and 3.87 s over HTTP/2 (3 runs
//! each) without pauses, and 1.30, 1.38 and 2.49 s with them.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

/// Busy time after which more data is likely to follow: about the time that 64 KiB take. A peer
/// that alternates between requests and responses causes less work than this.
const MUCH: Duration = Duration::from_micros(20);

/// Length of the pause. A peer that sends 3 GB/s sends 600 KB in this time, which the kernel
/// buffers. With 100 µs, an HTTP/2 upload took 3.3 s. 400 µs brought no further gain, except for a
/// single upload through the proxy.
const PAUSE: Duration = Duration::from_micros(200);

thread_local! {
    static WOKEN_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Configures `runtime` so that its busy worker threads pause before they sleep.
pub(crate) fn wake_ups(runtime: &mut Builder) -> &mut Builder {
    with_pause(runtime, MUCH, || thread::sleep(PAUSE))
}

fn with_pause(runtime: &mut Builder, much: Duration, pause: fn()) -> &mut Builder {
    runtime.on_thread_unpark(|| WOKEN_AT.set(Some(Instant::now()))).on_thread_park(move || {
        if WOKEN_AT.take().is_some_and(|woken_at| woken_at.elapsed() >= much) {
            pause();
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// More time than a trivial task takes, even on a busy machine.
    const MUCH: Duration = Duration::from_millis(5);

    static PAUSES: AtomicUsize = AtomicUsize::new(0);

    /// Counts the pauses of a thread that is repeatedly woken to work for the time `work`.
    fn pauses(work: Duration) -> usize {
        const TURNS: usize = 50;
        let mut builder = Builder::new_multi_thread();
        let builder = with_pause(builder.worker_threads(1), MUCH, || {
            PAUSES.fetch_add(1, Ordering::Relaxed);
        });
        PAUSES.store(0, Ordering::Relaxed);
        let runtime = builder.build().unwrap();
        for _ in 0..TURNS {
            // By then the worker thread is asleep, unless the machine is busy.
            thread::sleep(Duration::from_millis(1));
            let (worked, has_worked) = mpsc::channel();
            runtime.spawn(async move {
                let begin = Instant::now();
                while begin.elapsed() < work {}
                worked.send(())
            });
            has_worked.recv().unwrap();
        }
        drop(runtime);
        PAUSES.load(Ordering::Relaxed)
    }

    #[test]
    #[ignore = "alone: measures times"]
    fn a_thread_pauses_only_after_much_work() {
        let (little, much) = (pauses(Duration::ZERO), pauses(MUCH));
        assert!(little < 25 && much > 25, "{little}, {much} of 50");
    }
}
