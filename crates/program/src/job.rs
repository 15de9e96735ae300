//! Runs the blocking job of the process until it ends or a signal stops it, and turns a panic into
//! an error message.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::signal::{ShutdownRequest, StopSignal};
use crate::threads;

/// Time that a pod may spend on clean-up after a signal. By default the kubelet kills a pod after
/// 30 s (`terminationGracePeriodSeconds`), so the partial target is removed well before that.
pub const POD_GRACE: Duration = Duration::from_secs(10);

/// Time that a command may spend on clean-up after a signal. Unlinking a file is quick, and a
/// person who presses Ctrl-C should not have to wait while the kernel is busy with an `fsync`.
pub const COMMAND_GRACE: Duration = Duration::from_secs(2);

/// The result of [`run_job`].
#[derive(Debug)]
pub enum JobOutcome<T> {
    /// The job returned this value, possibly early because of a signal.
    Returned(T),
    /// The job panicked, which is a bug, or the system refused to start a thread for it. The
    /// message states which.
    Failed(String),
    /// The job did not return within the grace time after this signal.
    Overdue(StopSignal),
}

/// Runs `job` on a blocking thread until it returns, panics, or exceeds `grace` after a signal.
///
/// If the job exceeds `grace`, the process ends without waiting for it. `abandon` then does the
/// clean-up that the hanging job cannot do: it removes the unfinished file of the transfer.
/// `abandon` is also called if this future is dropped early, for example after a panic elsewhere
/// in the process. Otherwise the job could complete its disk while the process reports a failure.
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
    // A guard is used because the caller can also drop this future before the job has ended.
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

/// Calls the function when dropped, unless the function was taken out first.
pub struct OnDrop(pub Option<fn()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// Returns the number of threads for the data path: one for each CPU that this process may use.
pub fn data_threads() -> NonZeroUsize {
    NonZeroUsize::new(crate::cpus::usable_count()).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `job` with this grace time. If `stopped`, it is asked to stop at once.
    fn run<T: Send + 'static>(
        stopped: bool,
        grace: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> JobOutcome<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            let shutdown = crate::signal::watch_signals().unwrap();
            if stopped {
                shutdown.cancel_token().cancel();
            }
            run_job(&shutdown, grace, || (), job).await
        });
        runtime.shutdown_background();
        ended
    }

    #[test]
    fn a_panic_becomes_one_line_with_its_source_location() {
        crate::panics::install_hook();
        let ended = run(false, Duration::from_secs(9), || -> u8 { panic!("seven\nis odd") });
        let JobOutcome::Failed(sentence) = ended else { panic!("{ended:?}") };
        let expected = "internal error, please report it: seven is odd (";
        assert!(sentence.starts_with(expected) && sentence.contains("job.rs:"), "{sentence}");
    }

    #[test]
    fn a_stopped_job_returns_its_value_or_is_left_behind_after_the_grace_time() {
        let ended = run(true, Duration::from_secs(9), || 7);
        assert!(matches!(ended, JobOutcome::Returned(7)), "{ended:?}");
        let (_ending, end) = std::sync::mpsc::channel::<()>();
        let ended = run(true, Duration::from_millis(20), move || end.recv().ok());
        assert!(matches!(ended, JobOutcome::Overdue(StopSignal::Terminate)), "{ended:?}");
    }
}
