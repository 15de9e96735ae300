//! Programs that have ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

use crate::fail::OrFail;

/// The result of a program and the resources it used.
#[derive(Debug)]
pub struct Finished {
    /// The command line, for messages.
    pub name: String,
    pub(super) status: ExitStatus,
    /// Everything on standard output.
    pub stdout: String,
    /// Everything on standard error.
    pub stderr: String,
    /// Time from start to end.
    pub wall: Duration,
    pub(super) written_bytes: Option<u64>,
    /// The largest resident set of the program, if it was [measured](super::Program::measured).
    pub peak_rss_bytes: Option<u64>,
}

impl Finished {
    /// Bytes that the program passed to `write` and similar calls: the target's data, and the few
    /// of its log. Fails the test unless it is run by root: the kernel tells it no other user once
    /// the program has ended.
    #[track_caller]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.or_fail("this test needs root, for /proc/PID/io of an ended program")
    }

    /// The exit code as a shell reports it: 128 + the signal's number if the program was killed.
    pub fn code(&self) -> i32 {
        self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
    }

    /// True if the program panicked or was killed by a fault instead of reporting an error.
    pub fn crashed(&self) -> bool {
        const RUST_PANIC: i32 = 101;
        const FAULTS: [Signal; 4] = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL];
        self.code() == RUST_PANIC
            || self.stderr.contains("panicked at")
            || FAULTS.iter().any(|signal| self.code() == 128 + signal.as_raw())
    }

    /// Fails the test unless the program succeeded.
    #[track_caller]
    pub fn assert_success(&self, case: &str) {
        assert!(
            self.code() == 0,
            "{case}: exit code {}\n{}\n{}",
            self.code(),
            self.name,
            self.stderr
        );
    }

    /// Fails the test unless the program ended with `code` and standard error contains `sentence`.
    #[track_caller]
    pub fn assert_failure(&self, code: i32, sentence: &str) {
        assert!(
            self.code() == code && self.stderr.contains(sentence),
            "expected exit code {code} and {sentence:?}, got exit code {}\n{}\n{}",
            self.code(),
            self.name,
            self.stderr
        );
    }
}
