//! Runs one check on many cases, on all cores, and lists the failing cases in the test's message.

use std::fmt::{self, Display};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::fail::OrFail;
use crate::jobs::TestPrograms;
use crate::random::Random;

/// Number of failures shown: a broken stage fails hundreds of cases for the same reason.
const SHOWN: usize = 12;

/// A case, and the name by which its failure is reported.
pub struct Named<N, C>(pub N, pub C);

impl<N: Display, C> Display for Named<N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

/// Returns `count` of the cases: a sample that changes from run to run, so that many short runs
/// try what one long run would. `CDI_TEST_ALL` chooses all cases. The seed is printed, and
/// `CDI_TEST_SEED` repeats the sample.
#[allow(clippy::print_stderr, reason = "the seed of a run, for its log")]
pub fn sample<C>(cases: Vec<C>, count: usize) -> Vec<C> {
    if std::env::var_os("CDI_TEST_ALL").is_some() {
        return cases;
    }
    let seed = match std::env::var("CDI_TEST_SEED") {
        Ok(seed) => seed.parse().or_fail("CDI_TEST_SEED is a number"),
        // The keys of a new hasher are random.
        Err(_) => RandomState::new().hash_one(()),
    };
    eprintln!("seed {seed}");
    choose(cases, count, seed)
}

fn choose<C>(mut cases: Vec<C>, count: usize, seed: u64) -> Vec<C> {
    Random::new(seed).shuffle(&mut cases);
    cases.truncate(count);
    cases
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

    #[test]
    fn a_sample_depends_on_its_seed_alone_and_has_no_case_twice() {
        let mut chosen = choose((0..100).collect(), 30, 7);
        assert_eq!(chosen, choose((0..100).collect(), 30, 7));
        assert_ne!(chosen, choose((0..100).collect::<Vec<u8>>(), 30, 8));
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 30);
        assert_eq!(choose(vec![1, 2], 3, 0).len(), 2);
    }
}
