//! What command lines draw on a terminal: a bar, and log lines above it.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line of progress appears.
pub const LINE_PERIOD: Duration = Duration::from_secs(1);

/// How often the bar is drawn.
pub const BAR_PERIOD: Duration = Duration::from_millis(100);

/// For what knows how much there is.
pub const BAR: &str =
    "{bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";

/// How a bar looks, by a template of `indicatif`.
pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Writes log lines to stderr, above the bar if there is one.
pub struct LogWriter(pub Option<ProgressBar>);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
