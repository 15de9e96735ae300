//! Fewer wake-ups of the threads that carry sockets, as network cards coalesce interrupts.
//!
//! A thread that is faster than its peers sleeps and is woken for each of their packets, 34,000 times for a raw import of 4 GiB. So one
//! that has had much to do since it was woken waits for a moment before it looks for more. Medians of 9 imports, 3 uploads over HTTP/1.1
//! and 3 over HTTP/2 of that disk: 1.54, 1.69 and 3.87 s of the processor without such pauses, 1.30, 1.38 and 2.49 with them.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

/// Work behind which more is about to come: what some 64 KiB take. Who asks and answers in turn has less to do.
const MUCH: Duration = Duration::from_micros(20);

/// The pause. A peer that sends 3 GB/s has sent 600 KB then, which the system keeps; with 100 µs HTTP/2 took 3.3 s, and 400 µs gained
/// no more in anything but a single upload through the proxy.
const PAUSE: Duration = Duration::from_micros(200);

thread_local! {
    static WOKEN_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes the threads of a runtime do so.
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

    /// More than a busy machine makes of nothing.
    const MUCH: Duration = Duration::from_millis(5);

    static PAUSES: AtomicUsize = AtomicUsize::new(0);

    /// Pauses of a thread that is woken to work for so long, time and again.
    fn pauses(work: Duration) -> usize {
        const TURNS: usize = 50;
        let mut builder = Builder::new_multi_thread();
        let builder = with_pause(builder.worker_threads(1), MUCH, || {
            PAUSES.fetch_add(1, Ordering::Relaxed);
        });
        PAUSES.store(0, Ordering::Relaxed);
        let runtime = builder.build().unwrap();
        for _ in 0..TURNS {
            // It sleeps by then, unless the machine is busy.
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
    fn who_had_much_to_do_pauses_and_who_had_little_does_not() {
        let (little, much) = (pauses(Duration::ZERO), pauses(MUCH));
        assert!(little < 25 && much > 25, "{little}, {much} of 50");
    }
}
