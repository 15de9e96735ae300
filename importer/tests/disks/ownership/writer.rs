//! A program that writes a target, and stops before the end until the test chooses how it ends.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program, Running};

use crate::ownership::gate::{self, Gate};
use crate::ownership::importer;

/// Bytes at the end of an object that the gate holds back.
const LAST_BYTES: usize = 4096;

/// Log message of a writer that has taken the target.
const TOOK: &str = "took the target";

/// A way to start a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Command { force: bool },
    Pod,
}

/// How a writer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    /// The last bytes are wrong.
    Failure,
    Terminated,
    Killed,
}

impl End {
    pub(crate) const ALL: [Self; 4] =
        [Self::Success, Self::Failure, Self::Terminated, Self::Killed];
}

/// An object and its target.
pub(crate) struct Job<'j> {
    pub(crate) object: &'j [u8],
    pub(crate) is_archive: bool,
    /// Root of the pod's file system.
    pub(crate) root: &'j Path,
    /// The same target, as the command line names it.
    pub(crate) target: PathBuf,
}

pub(crate) struct Writer {
    running: Running,
    gate: Gate,
    last: Vec<u8>,
}

impl Writer {
    /// Starts a writer; does not wait for it.
    pub(crate) fn start(face: Face, job: &Job<'_>) -> Self {
        let (first, last) = job.object.split_at(job.object.len() - LAST_BYTES);
        let (gate, program) = match face {
            Face::Command { force } => command(force, first, job),
            Face::Pod => pod(first, job),
        };
        Self { running: program.start(), gate, last: last.to_vec() }
    }

    /// Waits until this writer has taken the target; false if it ends before that.
    pub(crate) fn has_taken(&self) -> bool {
        self.running.wait_for_line_or_end(TOOK).is_some()
    }

    pub(crate) fn end(self, end: End) -> Finished {
        match end {
            End::Success => self.gate.open(&self.last),
            End::Failure => {
                let damaged: Vec<u8> = self.last.iter().map(|byte| !byte).collect();
                self.gate.open(&damaged);
            }
            End::Terminated => self.running.signal(Signal::TERM),
            End::Killed => self.running.signal(Signal::KILL),
        }
        self.running.wait()
    }

    /// Waits for the end of a writer that was refused.
    pub(crate) fn wait(self) -> Finished {
        self.running.wait()
    }
}

fn command(force: bool, first: &[u8], job: &Job<'_>) -> (Gate, Program) {
    let (gate, feed) = gate::pipe(first.to_vec());
    let program = match (job.is_archive, force) {
        (true, _) => importer(["unpack", "-vv", "--overwrite", "-"]),
        (false, true) => importer(["import", "-vv", "--progress=none", "--force", "-"]),
        (false, false) => importer(["import", "-vv", "--progress=none", "-"]),
    };
    (gate, program.arg(&job.target).stdin(feed))
}

fn pod(first: &[u8], job: &Job<'_>) -> (Gate, Program) {
    let (gate, url) = gate::serve(first.to_vec(), job.object.len());
    let content = if job.is_archive { "archive" } else { "kubevirt" };
    let program = super::pod(job.root)
        .env("IMPORTER_SOURCE", "http")
        .env("IMPORTER_ENDPOINT", url)
        .env("IMPORTER_CONTENTTYPE", content)
        .env("OWNER_UID", "uid")
        .env("FILESYSTEM_OVERHEAD", "0")
        .env("INSECURE_TLS", "false");
    (gate, program)
}

/// Asserts the exit code and the sentence of a writer that was refused because another one is at
/// work, or because something else has replaced its target.
pub(crate) fn assert_refused(finished: &Finished, face: Face, sentence: &str) {
    let code = match face {
        Face::Command { .. } => 7,
        Face::Pod => 1,
    };
    finished.assert_failure(code, sentence);
}

/// Puts a file of `bytes` at `path` in one step, so that it is never seen incomplete.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).or_fail(new.display());
    std::fs::rename(&new, path).or_fail(path.display());
}
