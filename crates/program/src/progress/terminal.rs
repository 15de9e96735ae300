//! A status line on a terminal that is drawn repeatedly.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::env::{NamedStrings, ProcessEnv};

/// Width in columns that is assumed if the terminal does not report one.
const USUAL_COLUMNS: u16 = 80;

/// Erases the line and everything below it. The cursor always stands at the beginning of the line.
/// After a resize, terminals move the cursor together with the character at its position, so the
/// rows into which they wrapped the rest of the line are erased too.
const ERASE: &str = "\r\x1b[J";

/// Switch line wrapping off and on. The terminal may become narrower after its size was read and
/// before the line is written.
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
        // One write, and old text is overwritten before the rest is erased: the line does not
        // flicker.
        let line = format!("\r{NO_WRAP}{text}{WRAP}\x1b[J\r");
        io::stderr().write_all(line.as_bytes()).ok();
    }

    /// Erases the line.
    pub(super) fn clear(&self) {
        erase(&mut self.is_shown.lock());
    }

    /// Writes whole lines. The status line is drawn again below them.
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
    io::stderr().is_terminal()
        && ProcessEnv.get("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// The current width of the terminal at stderr in columns.
pub(super) fn terminal_columns() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    usize::from(if columns == 0 { USUAL_COLUMNS } else { columns })
}
