//! Runs the one blocking job of the process under its signals, and turns a panic into a sentence.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::signal::{ShutdownRequest, StopSignal};
use crate::threads;

/// Time for the work of a pod to clean up after a signal. The kubelet kills after 30 s by default (`terminationGracePeriodSeconds`), so
/// the partial target is gone well before that.
pub const POD_GRACE: Duration = Duration::from_secs(10);

/// Time for a command to clean up after a signal. Unlinking a file takes no time; a person who presses Ctrl-C while the kernel is busy
/// with an `fsync` need not wait for its end.
pub const COMMAND_GRACE: Duration = Duration::from_secs(2);

/// The end of a job.
#[derive(Debug)]
pub enum JobOutcome<T> {
    /// It returned; after a signal that is the answer to being stopped.
    Returned(T),
    /// The job panicked, which is a bug, or the system refused its thread. The sentence says which.
    Failed(String),
    /// It did not return within the grace time after a signal.
    Overdue(StopSignal),
}

/// Runs `job` on a thread that may block, until it returns, panics, or is `grace` late after a
/// signal. The process ends then, and `abandon` does what a job that hangs cannot: it removes the
/// file of its transfer from under it. That is done too when this future is dropped before its
/// end, by a panic beside the job: no disk becomes complete while the process ends with a
/// failure.
pub async fn run_job<T, F>(
    shutdown: &ShutdownRequest,
    grace: Duration,
    abandon: fn(),
    job: F,
) -> JobOutcome<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let mut left_behind = OnDrop(Some(abandon));
    let overdue = async {
        shutdown.cancel_token().cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        value = threads::run_blocking(job) => {
            left_behind.0 = None;
            value.map_or_else(|error| JobOutcome::Failed(error.to_string()), JobOutcome::Returned)
        }
        () = overdue => JobOutcome::Overdue(shutdown.first_signal().unwrap_or(StopSignal::Terminate)),
    }
}

/// Calls a function when it is dropped, unless that was taken out.
pub struct OnDrop(pub Option<fn()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// Threads for the data path: one a CPU that this process may use.
pub fn data_threads() -> NonZeroUsize {
    NonZeroUsize::new(crate::cpus::usable_count()).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    #[test]
    fn a_panic_becomes_a_sentence_with_its_place() {
        crate::panics::install_hook();
        let ended = runtime().block_on(async {
            let shutdown = crate::signal::watch_signals().unwrap();
            run_job(&shutdown, Duration::from_secs(9), || (), || -> u8 { panic!("seven\nis odd") }).await
        });
        let JobOutcome::Failed(sentence) = ended else { panic!("{ended:?}") };
        assert!(sentence.starts_with("internal error, please report it: seven is odd ("), "{sentence}");
        assert!(sentence.contains("job.rs:"), "{sentence}");
    }

    #[test]
    fn a_job_that_ignores_the_stop_is_left_behind_after_the_grace_time() {
        let runtime = runtime();
        let ended = runtime.block_on(async {
            let shutdown = crate::signal::watch_signals().unwrap();
            shutdown.cancel_token().cancel();
            run_job(
                &shutdown,
                Duration::from_millis(20),
                || (),
                // A thread does not see a paused clock: it must really outlast the grace time.
                || std::thread::sleep(Duration::from_secs(5)),
            )
            .await
        });
        assert!(matches!(ended, JobOutcome::Overdue(StopSignal::Terminate)), "{ended:?}");
        runtime.shutdown_background();
    }

    #[test]
    fn a_job_that_stops_in_time_returns_its_value() {
        let value = runtime().block_on(async {
            let shutdown = crate::signal::watch_signals().unwrap();
            shutdown.cancel_token().cancel();
            run_job(&shutdown, Duration::from_secs(9), || (), || 7).await
        });
        assert!(matches!(value, JobOutcome::Returned(7)), "{value:?}");
    }
}
