//! Runs one check on many cases, on all cores, and lists the failing cases in the test's message.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::fail::OrFail;
use crate::jobs::TestPrograms;

/// Number of failures shown: a broken stage fails hundreds of cases for the same reason.
const SHOWN: usize = 12;

/// Runs `check` on every case. After all cases have run, fails the test if `check` panicked for
/// any of them.
#[track_caller]
pub fn check_all<C: Display + Send>(
    cases: impl IntoIterator<Item = C, IntoIter: Send>,
    check: impl Fn(&C) + Sync,
) {
    let workers = std::thread::available_parallelism().or_fail("the number of cores").get();
    check_all_by(workers, cases, check);
}

/// Like [`check_all`], with this number of cases at a time. Checks that mostly wait can use more
/// than there are cores.
#[track_caller]
pub fn check_all_by<C: Display + Send>(
    workers: usize,
    cases: impl IntoIterator<Item = C, IntoIter: Send>,
    check: impl Fn(&C) + Sync,
) {
    let cases = Mutex::new(cases.into_iter());
    let failures = Mutex::new(Vec::new());
    let next = || cases.lock().ok().or_fail("the list of cases").next();
    let programs = TestPrograms::of_this_thread();
    let work = || {
        programs.adopt();
        while let Some(case) = next() {
            if let Err(reason) = catch_unwind(AssertUnwindSafe(|| check(&case))) {
                let reason = format!("{case}: {}", sentence(reason.as_ref()));
                failures.lock().ok().or_fail("the list of failures").push(reason);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().ok().or_fail("the list of failures");
    let shown = failures.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} cases failed:\n\n{shown}", failures.len());
}

/// The message of a panic.
fn sentence(payload: &(dyn std::any::Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "2 cases failed")]
    fn every_case_runs_and_every_failure_counts() {
        check_all(1..=10, |n| assert!(n % 5 != 0, "{n} is a multiple of 5"));
    }
}
