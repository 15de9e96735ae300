//! Tests that `failing` makes the chosen call fail, and no other.
//!
//! This file also makes `cargo test --workspace` build `failing`, which tests of other packages
//! run.
#![cfg(target_arch = "x86_64")]

use testkit::fail::OrFail;
use testkit::failing::{self, Effect, Fault, GROUPS};
use testkit::process::Program;

const FAILING: &str = env!("CARGO_BIN_EXE_failing");

/// Directories that the program makes, with one call each.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A program that begins with poll(2) like the `main` of a Rust program, and then makes its
/// arguments as directories. Its exit code is the number of directories that it could not make.
const PROGRAM: &str = "
import os, select, sys
select.poll().poll(0)
failed = 0
for path in sys.argv[1:]:
    try:
        os.mkdir(path)
    except OSError:
        failed += 1
sys.exit(failed)
";

/// Returns the program's exit code and the directories that it made if call number `nth` fails.
fn made(nth: u64, effect: Effect) -> (i32, Vec<&'static str>) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let report = folder.path().join("report");
    let paths = NAMES.map(|name| folder.path().join(name));
    let group = GROUPS.iter().find(|group| group.name == "names");
    let fault = Fault { group: group.or_fail("the group of names"), nth, effect };
    let program = Program::new("python3").args(["-c", PROGRAM]).args(&paths);
    let finished = fault.in_program(program, FAILING, &report).start().wait();
    let counts = failing::counts(&report);
    let count = counts.iter().find(|(group, _)| group.name == "names");
    assert_eq!(count.map(|(_, count)| *count), Some(3), "{}", finished.stderr);
    let is_there = |name: &&str| folder.path().join(name).is_dir();
    (finished.code(), NAMES.into_iter().filter(is_there).collect())
}

#[test]
#[ignore = "tools: python3"]
fn the_chosen_call_fails_and_no_other() {
    let error = 5; // EIO
    assert_eq!(made(1, Effect::None), (0, vec!["a", "b", "c"]));
    assert_eq!(made(1, Effect::Once(error)), (1, vec!["b", "c"]));
    assert_eq!(made(2, Effect::Once(error)), (1, vec!["a", "c"]));
    assert_eq!(made(3, Effect::Once(error)), (1, vec!["a", "b"]));
    assert_eq!(made(2, Effect::Forever(error)), (2, vec!["a"]));
    assert_eq!(made(4, Effect::Once(error)), (0, vec!["a", "b", "c"]));
}
