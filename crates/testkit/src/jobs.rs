//! Limits how many programs under test run at once on this machine, whatever the number of test
//! programs, tests and cases that want to start one.
//!
//! Without a limit, three test programs with two tests each, some of which check cases on all
//! cores, ran up to twelve imports at once on two cores, and whatever waited for one of them
//! depended on the machine.

use std::cell::RefCell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;

/// Programs that run at once for each core: one that computes and one that waits.
const JOBS_PER_CORE: usize = 2;

/// Interval between two attempts to get a job.
const POLL: Duration = Duration::from_millis(5);

thread_local! {
    /// Cloned by every program that this test runs: more than one reference means that one runs.
    static RUNNING: RefCell<Arc<()>> = RefCell::default();
}

/// The right to run a program. Released when it is dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Job {
    _place: Option<UnixDatagram>,
    _running: Arc<()>,
}

/// The programs that a test runs. Passed on to threads that run programs for the same test.
#[derive(Debug, Clone)]
pub(crate) struct TestPrograms(Arc<()>);

impl TestPrograms {
    /// Returns those of the current thread.
    pub(crate) fn of_this_thread() -> Self {
        Self(RUNNING.with_borrow(Arc::clone))
    }

    /// Makes the current thread one of the same test.
    pub(crate) fn adopt(&self) {
        RUNNING.set(Arc::clone(&self.0));
    }
}

/// Waits until another program may run, and returns the right to run it.
///
/// A test that already runs one does not wait: if all tests held a program and waited for the
/// second, none would end. For the same reason, nobody waits forever.
pub(crate) fn take() -> Job {
    let started = Instant::now();
    let running = RUNNING.with_borrow(Arc::clone);
    // The thread's own reference and this one.
    let is_first = Arc::strong_count(&running) == 2;
    loop {
        let place = free_place();
        if place.is_some() || !is_first || started.elapsed() > PATIENCE {
            return Job { _place: place, _running: running };
        }
        std::thread::sleep(POLL);
    }
}

/// Returns one of the places for programs. The kernel gives an abstract name (unix(7)) to one
/// socket at a time.
fn free_place() -> Option<UnixDatagram> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cores * JOBS_PER_CORE).find_map(|number| {
        let name = UnixAddress::from_abstract_name(format!("cdi-workers test job {number}"));
        UnixDatagram::bind_addr(&name.ok()?).ok()
    })
}
