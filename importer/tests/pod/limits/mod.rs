//! Every program with at most 1, 2, 3… threads or open files, until the limit no longer disturbs
//! it. It always ends with a sentence and a documented exit code, a disk is complete only if the
//! program reports success, and a server serves again when the limit is lifted.

mod jobs;
mod servers;

use std::fmt;
use std::fs;
use std::path::Path;

use testkit::cgroup::PidsCgroup;
use testkit::process::{Finished, Program};
use testkit::tools;
use testkit::upload_proxy::beside;

/// Largest limit that is tried: no program of ours needs more for a small task.
const MOST: u64 = 40;

/// Number of successive limits without an effect, after which larger ones are not tried.
const UNCHANGED: u32 = 3;

/// The codes of `program::exit`, without those of signals.
const CODES: [i32; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 255];

/// Exit code by which a shell or loader reports that it could not even start a program.
const NOT_STARTED: i32 = 127;

/// A limit of the system.
enum Limit {
    /// Processes and threads, by `pids.max`.
    Threads(PidsCgroup),
    /// Open files, by RLIMIT_NOFILE.
    Files,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads(_) => "thread(s)",
            Self::Files => "open file(s)",
        })
    }
}

impl Limit {
    fn all() -> [Self; 2] {
        [Self::Threads(PidsCgroup::new()), Self::Files]
    }

    /// Runs `program` with this limit at `most`.
    fn wrap(&self, program: Program, most: u64) -> Program {
        match self {
            Self::Threads(group) => {
                group.limit(most);
                group.wrap(program)
            }
            // Only the soft limit is set, so that it can be lifted again.
            Self::Files => {
                program.under("prlimit", [format!("--nofile={most}:1024"), "--".to_owned()])
            }
        }
    }

    /// Lifts the limit of the process `id`.
    fn lift(&self, id: u32) {
        match self {
            Self::Threads(group) => group.lift(),
            Self::Files => {
                tools::run("prlimit", [format!("--pid={id}"), "--nofile=1024:1024".to_owned()]);
            }
        }
    }
}

/// The program `name` beside the importer.
fn program(name: &str) -> Program {
    Program::new(beside(crate::BINARY, name))
}

/// Fails the test unless the program ended in a way that is allowed under any limit.
#[track_caller]
fn assert_told(case: &str, finished: &Finished) {
    let said = format!("{}{}", finished.stdout, finished.stderr);
    if finished.code() == NOT_STARTED {
        // The images' programs are static and have no loader.
        assert!(said.contains("error while loading shared libraries"), "{case}: {said}");
        return;
    }
    assert!(
        CODES.contains(&finished.code())
            && !finished.crashed()
            && (finished.code() == 0 || !said.trim().is_empty()),
        "{case}: {} {said}",
        finished.code()
    );
}

/// True if `disk` looks like a complete one: a file with something in its first MiB.
fn is_complete(disk: &Path) -> bool {
    let first = fs::read(disk).unwrap_or_default();
    first.iter().take(1 << 20).any(|byte| *byte != 0)
}
