//! Starts threads and reports when the system refuses one. The process limit of a pod or node
//! (`pids`) counts threads too.
//!
//! tokio starts threads as well, for `spawn_blocking` and everything built on it (`lookup_host`,
//! `tokio::fs`). If it cannot start one, it panics or leaves the work in a queue that no thread
//! serves: one job waited there forever. Our programs therefore use none of these functions;
//! `ci/boundaries` checks this.

use std::io;
use std::thread::Builder;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::panics::{self, CaughtPanic};

/// Reasons why work on another thread was not completed.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The system refused to start a thread.
    #[error(
        "cannot start a thread: {0}; raise the process limit (pids of the pod or node, or ulimit -u)"
    )]
    Refused(io::Error),
    /// The work panicked.
    #[error(transparent)]
    Panicked(#[from] CaughtPanic),
}

/// Runs `work` on a new thread within the caller's runtime context.
pub fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<(), ThreadError> {
    let runtime = Handle::try_current().ok();
    let started = Builder::new().spawn(move || {
        let _entered = runtime.as_ref().map(Handle::enter);
        work();
    });
    started.map(drop).map_err(ThreadError::Refused)
}

/// Runs `work` on a new thread, where it may block. The future resolves to its value. Dropping the
/// future does not stop the work.
pub fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, ThreadError>> {
    let (done, ended) = oneshot::channel();
    let started = start_thread(move || {
        // The send fails if the caller has dropped the future, which is not an error.
        done.send(panics::catch_panic(work)).ok();
    });
    async move {
        started?;
        match ended.await {
            Ok(ended) => Ok(ended?),
            // Unreachable: the thread always sends a value before it ends.
            Err(gone) => Err(ThreadError::Refused(io::Error::other(gone))),
        }
    }
}
