//! Threads, which a system may refuse: the limit of a pod's or node's processes (`pids`) counts
//! them.
//!
//! tokio makes threads as well, for `spawn_blocking` and what rests on it (`lookup_host`,
//! `tokio::fs`). If it gets none, it panics, or leaves the work in a queue that no thread takes
//! it from: a job waited there for ever. So our programs use neither; `ci/boundaries` looks for
//! them.

use std::io;
use std::thread::Builder;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::panics::{self, CaughtPanic};

/// Work that another thread was to do, and did not.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The system gives no thread.
    #[error(
        "cannot start a thread: {0}; raise the limit of processes (pids of the pod or node, or ulimit -u)"
    )]
    Refused(io::Error),
    /// The work has panicked.
    #[error(transparent)]
    Panicked(#[from] CaughtPanic),
}

/// Begins `work` on a thread of its own, on which the runtime of the caller is the current one.
pub fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<(), ThreadError> {
    let runtime = Handle::try_current().ok();
    let started = Builder::new().spawn(move || {
        let _entered = runtime.as_ref().map(Handle::enter);
        work();
    });
    started.map(drop).map_err(ThreadError::Refused)
}

/// Begins `work` on a thread of its own, where it may block. The future waits for its value;
/// dropping the future does not stop the work.
pub fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, ThreadError>> {
    let (done, ended) = oneshot::channel();
    let started = start_thread(move || {
        // Perhaps nobody waits any more.
        done.send(panics::catch_panic(work)).ok();
    });
    async move {
        started?;
        match ended.await {
            Ok(ended) => Ok(ended?),
            // Not reached: the thread cannot end without sending.
            Err(gone) => Err(ThreadError::Refused(io::Error::other(gone))),
        }
    }
}
