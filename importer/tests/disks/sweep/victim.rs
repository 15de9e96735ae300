//! The program whose system calls fail, and what is asked of it however it ends.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::failing::{self, Effect, Fault};
use testkit::process::{Finished, Program};

pub(crate) const IMPORTER: &str = crate::BINARY;

/// Time for a run, on a busy machine; the longest one waits 10 s for its server
/// (`program::job::POD_GRACE` and others).
const DEADLINE: Duration = Duration::from_secs(40);

/// The largest exit code of the table, below those of signals.
const LAST_CODE: i32 = 7;

/// Ends of a Rust program that gets no memory for its own runtime, or for anything small: it
/// cannot go on, as if it were killed.
const OUT_OF_MEMORY: [i32; 2] = [101, 134];

/// The run of a program.
pub(crate) struct Victim<'v> {
    fault: Option<Fault>,
    report: &'v Path,
}

impl Victim<'_> {
    /// `program`, in which the fault of this run happens.
    pub(crate) fn program(&self, program: Program) -> Program {
        let program = program.timeout(DEADLINE);
        match &self.fault {
            Some(fault) => fault.in_program(program, IMPORTER, self.report),
            None => failing::counted(program, IMPORTER, self.report),
        }
    }

    /// True if the call fails from its place on, so that nothing that needs it can be done any
    /// more.
    pub(crate) fn is_for_ever(&self) -> bool {
        self.fault.is_some_and(|fault| matches!(fault.effect, Effect::Forever(_)))
    }

    /// True if the fault is of this kind.
    pub(crate) fn is_of(&self, group: &str) -> bool {
        self.fault.is_some_and(|fault| fault.group.name == group)
    }

    /// True if the program ended for want of memory, as if it were killed.
    pub(crate) fn has_aborted(&self, finished: &Finished) -> bool {
        self.is_of("memory") && OUT_OF_MEMORY.contains(&finished.code())
    }

    /// Fails the test unless the program has said how it ended. True if it says that all is well.
    #[track_caller]
    pub(crate) fn has_succeeded(&self, finished: &Finished) -> bool {
        let code = finished.code();
        let said = &finished.stderr;
        assert!(self.fault.is_some() || code == 0, "exit code {code} without a fault: {said}");
        let is_out_of_memory = self.has_aborted(finished);
        assert!((0..=LAST_CODE).contains(&code) || is_out_of_memory, "exit code {code}: {said}");
        let is_silent = said.trim().is_empty();
        assert!(code == 0 || is_out_of_memory || !is_silent, "exit code {code} without a sentence");
        code == 0
    }
}

/// Calls of a kind that fail in turn, at most: a run takes some 50 ms.
pub(crate) const MOST: u64 = 18;

/// Runs `scenario` without a fault, and then with every one, of `most` calls of a kind.
#[allow(clippy::print_stdout, reason = "the numbers of a run, for its log")]
pub(crate) fn sweep(name: &str, most: u64, scenario: impl Fn(&Victim<'_>) + Sync) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let report = folder.path().join("report");
    scenario(&Victim { fault: None, report: &report });
    let faults = failing::faults(&report, most);
    let counts = failing::counts(&report);
    let counts: Vec<String> = counts.iter().map(|(group, count)| format!("{} {count}", group.name)).collect();
    println!("{name}: calls: {}", counts.join(", "));
    let (runs, began) = (faults.len(), Instant::now());
    check_all(faults.into_iter().map(Case), |Case(fault)| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let report = folder.path().join("report");
        scenario(&Victim { fault: Some(*fault), report: &report });
    });
    println!("{name}: {runs} runs in {:.0?}", began.elapsed());
}

struct Case(Fault);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
