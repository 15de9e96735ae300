//! The program whose system calls fail, and the assertions that hold however it ends.

use std::path::Path;
use std::time::Instant;

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::failing::{self, Effect, Fault};
use testkit::process::{Finished, Program};

pub(crate) const IMPORTER: &str = crate::BINARY;

/// The largest exit code of the table, below those of signals.
const LAST_CODE: i32 = 7;

/// Exit codes of a Rust program whose runtime, or any small allocation, gets no memory. It cannot
/// continue, so that this counts as a kill.
const OUT_OF_MEMORY: [i32; 2] = [101, 134];

/// One run of a program, with a fault or without.
pub(crate) struct Victim<'v> {
    fault: Option<Fault>,
    report: &'v Path,
}

impl Victim<'_> {
    /// Returns `program` with the fault of this run.
    pub(crate) fn program(&self, program: Program) -> Program {
        match &self.fault {
            Some(fault) => fault.in_program(program, IMPORTER, self.report),
            None => failing::counted(program, IMPORTER, self.report),
        }
    }

    /// True if the call fails every time from its place on, so that nothing can succeed any more.
    pub(crate) fn is_for_ever(&self) -> bool {
        self.fault.is_some_and(|fault| matches!(fault.effect, Effect::Forever(_)))
    }

    /// True if the program ended for lack of memory, which counts as a kill.
    pub(crate) fn has_aborted(&self, finished: &Finished) -> bool {
        let is_for_memory = self.fault.is_some_and(|fault| fault.group.name == "memory");
        is_for_memory && OUT_OF_MEMORY.contains(&finished.code())
    }

    /// Fails the test unless the program says how it ended. Returns true for success.
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

/// Most calls of a kind that fail in turn: a run takes some 50 ms.
pub(crate) const MOST: u64 = 18;

/// Runs `scenario` without a fault and then once for each fault, for `most` calls of a kind.
#[allow(clippy::print_stdout, reason = "the numbers of a run, for its log")]
pub(crate) fn sweep(name: &str, most: u64, scenario: impl Fn(&Victim<'_>) + Sync) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let report = folder.path().join("report");
    scenario(&Victim { fault: None, report: &report });
    let faults = failing::faults(&report, most);
    let counts = failing::counts(&report);
    let counts: Vec<String> =
        counts.iter().map(|(group, count)| format!("{} {count}", group.name)).collect();
    println!("{name}: calls: {}", counts.join(", "));
    let (runs, began) = (faults.len(), Instant::now());
    check_all(faults, |fault| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let report = folder.path().join("report");
        scenario(&Victim { fault: Some(*fault), report: &report });
    });
    println!("{name}: {runs} runs in {:.0?}", began.elapsed());
}
