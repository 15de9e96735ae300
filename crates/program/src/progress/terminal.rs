//! The line of a terminal that is drawn again and again.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::env::{NamedStrings, ProcessEnv};

/// Columns of a terminal that does not say how many it has.
const USUAL_COLUMNS: u16 = 80;

/// Erases the line and all below it. The cursor always stands at the beginning of the line: after
/// a resize, terminals move it together with that character, and the rows into which they have
/// wrapped the rest are erased too.
const ERASE: &str = "\r\x1b[J";

/// Switch the wrapping of long lines off and on: a terminal may become narrower after its size was
/// read and before the line is written.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The status line on stderr. Clones are the same line.
#[derive(Debug, Clone, Default)]
pub(super) struct StatusLine {
    is_shown: Arc<Mutex<bool>>,
}

impl StatusLine {
    /// Shows `text` in place of what is shown.
    pub(super) fn draw(&self, text: &str) {
        let mut is_shown = self.is_shown.lock();
        *is_shown = true;
        // One write, and nothing is erased before it is written over: such a line does not
        // flicker.
        let line = format!("\r{NO_WRAP}{text}{WRAP}\x1b[J\r");
        io::stderr().write_all(line.as_bytes()).ok();
    }

    /// Leaves an empty line.
    pub(super) fn clear(&self) {
        erase(&mut self.is_shown.lock());
    }

    /// Writes whole lines, below which the next drawing stands.
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

/// True if stderr is a terminal that can erase.
pub(super) fn can_draw() -> bool {
    io::stderr().is_terminal()
        && ProcessEnv.get("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Columns of the terminal at stderr as it is now.
pub(super) fn terminal_columns() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    usize::from(if columns == 0 { USUAL_COLUMNS } else { columns })
}
