//! A status line on a terminal, redrawn at intervals.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::env::{NamedStrings, ProcessEnv};

/// Width in columns that is assumed if the terminal does not report one.
const USUAL_COLUMNS: u16 = 80;

/// Erases the line and everything below it. The cursor is always at the beginning of the line.
/// When a terminal is resized, it moves the cursor together with the character under it, so if it
/// wrapped the line, the extra rows are erased too.
const ERASE: &str = "\r\x1b[J";

/// Switch line wrapping off and on. It is off while the line is written, because the terminal may
/// have become narrower since its size was read.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The status line on stderr. All clones refer to the same line.
#[derive(Debug, Clone, Default)]
pub(super) struct StatusLine {
    is_shown: Arc<Mutex<bool>>,
}

impl StatusLine {
    /// Replaces the shown line with `text`.
    pub(super) fn draw(&self, text: &str) {
        let mut is_shown = self.is_shown.lock();
        *is_shown = true;
        // A single write, with old text overwritten before the rest is erased, keeps the line from
        // flickering.
        let line = format!("\r{NO_WRAP}{text}{WRAP}\x1b[J\r");
        io::stderr().write_all(line.as_bytes()).ok();
    }

    /// Erases the line.
    pub(super) fn clear(&self) {
        erase(&mut self.is_shown.lock());
    }

    /// Writes whole lines, and then draws the status line again below them.
    pub(super) fn write_above(&self, lines: &[u8]) -> io::Result<usize> {
        let mut is_shown = self.is_shown.lock();
        erase(&mut is_shown);
        io::stderr().write(lines)
    }
}

fn erase(is_shown: &mut bool) {
    if std::mem::take(is_shown) {
        io::stderr().write_all(ERASE.as_bytes()).ok();
    }
}

/// True if stderr is a terminal that can erase lines.
pub(super) fn can_draw() -> bool {
    io::stderr().is_terminal() && understands_escapes()
}

#[cfg(unix)]
fn understands_escapes() -> bool {
    ProcessEnv.get("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Switches escape sequences on in the console, which knows them since Windows 10. Few programs
/// set `TERM` there.
#[cfg(windows)]
fn understands_escapes() -> bool {
    ProcessEnv.get("TERM").is_none_or(|term| term != "dumb")
        && anstyle_query::windows::enable_ansi_colors().unwrap_or(false)
}

/// Returns the current width in columns of the terminal at stderr.
pub(super) fn terminal_columns() -> usize {
    let columns = terminal_size::terminal_size_of(io::stderr()).map_or(0, |size| size.0.0);
    usize::from(if columns == 0 { USUAL_COLUMNS } else { columns })
}
