//! A terminal with a given number of columns that records what is displayed on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use crate::fail::OrFail;
use crate::wait;

/// A terminal. [`crate::process::Program::start_on`] runs a program on it.
pub struct Terminal {
    controller: File,
    screen: Arc<Mutex<Screen>>,
}

impl Terminal {
    /// Opens a terminal with this number of columns.
    pub fn open(columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).or_fail("a pseudo-terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).or_fail("a pseudo-terminal");
        // Without ISIG, Ctrl-C does not discard unread output. Otherwise output could be lost that
        // the program writes after the signal, which may overtake the output.
        let mut modes = tcgetattr(&controller).or_fail("the modes of a terminal");
        modes.local_modes.remove(LocalModes::ISIG);
        tcsetattr(&controller, OptionalActions::Now, &modes).or_fail("the modes of a terminal");
        let screen = Arc::new(Mutex::new(Screen::new(columns.into())));
        let terminal = Self { controller: controller.into(), screen };
        terminal.resize(columns);
        terminal
    }

    /// Changes the number of columns.
    pub fn resize(&self, columns: u16) {
        let mut screen = self.lock();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.controller, size).or_fail("the size of a terminal");
        screen.columns = columns.into();
    }

    /// Types Ctrl-C and waits for its echo, which may be delayed. No signal is sent.
    #[track_caller]
    pub fn type_interrupt(&self) {
        let before = self.lock().history.len();
        (&self.controller).write_all(b"\x03").or_fail("keys");
        let complaint = || format!("no echo:\n{}", self.screen());
        wait::until(complaint, || self.lock().history[before..].windows(2).any(|two| two == b"^C"));
    }

    /// The visible lines, without empty lines at the end.
    pub fn screen(&self) -> String {
        self.lock().text()
    }

    /// The lines so far that were longer than the terminal's width.
    pub fn wrapped_lines(&self) -> Vec<String> {
        self.lock().wrapped.clone()
    }

    /// Waits until the screen contains `needle`, and returns the screen.
    #[track_caller]
    pub fn wait_for(&self, needle: &str) -> String {
        let complaint = || format!("{needle:?} is not to be seen:\n{}", self.screen());
        wait::find(complaint, || Some(self.screen()).filter(|text| text.contains(needle)))
    }

    /// Opens the programs' side of the terminal.
    pub(crate) fn program_side(&self) -> OwnedFd {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        ioctl_tiocgptpeer(&self.controller, flags).or_fail("the other side of a pseudo-terminal")
    }

    /// Reads everything that programs write. It ends when the last program closes the terminal.
    pub(crate) fn reader(&self) -> impl Read + Send + use<> {
        let controller = self.controller.try_clone().or_fail("a pseudo-terminal");
        ScreenReader { controller, screen: Arc::clone(&self.screen) }
    }

    fn lock(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().ok().or_fail("the reader of a terminal panicked")
    }
}

/// Reads what programs write, and displays it on the screen.
struct ScreenReader {
    controller: File,
    screen: Arc<Mutex<Screen>>,
}

impl Read for ScreenReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.controller.read(buffer)?;
        self.screen.lock().ok().or_fail("a screen").show(&buffer[..length]);
        Ok(length)
    }
}

/// The lines of a terminal that rewraps long lines when it is resized. A line is what a program
/// wrote as one; the rows that it occupies follow from the current number of columns.
struct Screen {
    columns: usize,
    lines: Vec<Vec<char>>,
    line: usize,
    column: usize,
    wraps: bool,
    /// The incomplete start of a character or control sequence.
    rest: Vec<u8>,
    wrapped: Vec<String>,
    /// All bytes received.
    history: Vec<u8>,
}

impl Screen {
    fn new(columns: usize) -> Self {
        Self {
            columns,
            lines: vec![Vec::new()],
            line: 0,
            column: 0,
            wraps: true,
            rest: Vec::new(),
            wrapped: Vec::new(),
            history: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let lines =
            self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    fn show(&mut self, bytes: &[u8]) {
        self.history.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut shown = 0;
        while let Some(length) = self.show_one(&rest[shown..]) {
            shown += length;
        }
        self.rest = rest.split_off(shown);
    }

    /// Displays the first character or control sequence and returns its length, or `None` if it is
    /// incomplete.
    fn show_one(&mut self, bytes: &[u8]) -> Option<usize> {
        match bytes {
            [] | [0x1b] => None,
            [0x1b, b'[', sequence @ ..] => {
                let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
                self.control(&String::from_utf8_lossy(&sequence[..=end]));
                Some(end + 3)
            }
            [b'\r', ..] => {
                self.note_width();
                // To the start of the row, not of the line. After the last column, the cursor is
                // still in the same row.
                self.column = self.column.saturating_sub(1) / self.columns * self.columns;
                Some(1)
            }
            [b'\n', ..] => {
                self.line += 1;
                if self.lines.len() == self.line {
                    self.lines.push(Vec::new());
                }
                Some(1)
            }
            _ => {
                let text = bytes.utf8_chunks().next()?.valid();
                let character = text.chars().next()?;
                self.put(character);
                Some(character.len_utf8())
            }
        }
    }

    fn put(&mut self, character: char) {
        let line = &mut self.lines[self.line];
        line.resize(line.len().max(self.column + 1), ' ');
        line[self.column] = character;
        if self.wraps || self.column % self.columns + 1 < self.columns {
            self.column += 1;
        }
    }

    fn control(&mut self, sequence: &str) {
        match sequence {
            "J" => {
                self.lines[self.line].truncate(self.column);
                self.lines.truncate(self.line + 1);
            }
            "?7l" => self.wraps = false,
            "?7h" => self.wraps = true,
            colors if colors.ends_with('m') => {}
            other => panic!("this terminal does not know the sequence {other:?}"),
        }
    }

    /// Records the line if it wraps.
    fn note_width(&mut self) {
        let line = &self.lines[self.line];
        if line.len() > self.columns && self.wraps && self.column > self.columns {
            self.wrapped.push(line.iter().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(columns: usize, text: &str) -> Screen {
        let mut screen = Screen::new(columns);
        // Byte by byte, because the result must not depend on how reads divide the output.
        text.bytes().for_each(|byte| screen.show(&[byte]));
        screen
    }

    #[test]
    fn a_line_is_drawn_over_and_erased() {
        assert_eq!(screen(9, "one\r\ntwo ██\r\x1b[1mthree\x1b[J").text(), "one\nthree");
        assert_eq!(screen(9, "one\r\ntwo\r\x1b[J").text(), "one");
        assert_eq!(screen(4, "\x1b[?7labcdefg\x1b[?7h").text(), "abcg");
    }

    #[test]
    fn a_wrapped_line_keeps_its_first_rows_when_drawn_over() {
        let wrapped = screen(4, "abcdef\rx\x1b[J");
        assert_eq!(
            (wrapped.text().as_str(), wrapped.wrapped),
            ("abcdx", vec!["abcdef".to_owned()])
        );
        let mut narrower = screen(8, "abcdefg\r");
        narrower.columns = 4;
        narrower.show(b"\x1b[Jx");
        assert_eq!(narrower.text(), "x", "the cursor was in the first row of the line");
    }
}
