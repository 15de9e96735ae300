//! The output of a program, which can be read while the program runs.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::fail::OrFail;
use crate::wait::PATIENCE;

/// A pipe that a thread of its own reads to the end.
pub(crate) struct Output {
    printed: Arc<Printed>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct Printed {
    so_far: Mutex<SoFar>,
    more: Condvar,
}

#[derive(Default)]
struct SoFar {
    bytes: Vec<u8>,
    ended: bool,
}

impl SoFar {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns the first complete line that contains `needle`.
    fn line_with(&self, needle: &str) -> Option<String> {
        let text = self.text();
        let complete = text.rfind('\n').and_then(|end| text.get(..end))?;
        complete.lines().find(|line| line.contains(needle)).map(str::to_owned)
    }
}

impl Output {
    pub(crate) fn collect(mut pipe: impl Read + Send + 'static) -> Self {
        let printed = Arc::new(Printed::default());
        let shared = Arc::clone(&printed);
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Output before an error is still worth showing.
            while let Ok(length @ 1..) = pipe.read(&mut piece) {
                shared.lock().bytes.extend_from_slice(&piece[..length]);
                shared.more.notify_all();
            }
            shared.lock().ended = true;
            shared.more.notify_all();
        });
        Self { printed, reader }
    }

    /// Waits for a line that contains `needle` and returns it. Fails the test if the output ends
    /// first or the line does not appear.
    #[track_caller]
    pub(crate) fn wait_for(&self, needle: &str) -> String {
        self.wait_for_or_end(needle)
            .or_fail(format!("{needle:?} was not printed:\n{}", self.so_far()))
    }

    /// Waits for a line that contains `needle` and returns it, or `None` if the output ends first.
    /// Fails the test if neither happens.
    #[track_caller]
    pub(crate) fn wait_for_or_end(&self, needle: &str) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut so_far = self.printed.lock();
        loop {
            let line = so_far.line_with(needle);
            if line.is_some() || so_far.ended {
                return line;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{needle:?} was not printed in time:\n{}", so_far.text());
            let (guard, _) = self
                .printed
                .more
                .wait_timeout(so_far, left)
                .ok()
                .or_fail("the reader of a pipe panicked");
            so_far = guard;
        }
    }

    /// Waits until the pipe is closed and returns all output.
    pub(crate) fn text(self) -> String {
        self.reader.join().ok().or_fail("the reader of a pipe");
        self.printed.lock().text()
    }

    /// The output so far.
    pub(crate) fn so_far(&self) -> String {
        self.printed.lock().text()
    }
}

impl Printed {
    fn lock(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().ok().or_fail("the reader of a pipe panicked")
    }
}
