//! Tables of typical user mistakes: how a program or server reports each of them, and what the
//! error message says.
//!
//! [`user_mistakes!`](crate::user_mistakes) makes a table, with two lines for each mistake, and
//! [`MistakeScene`] checks it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cases;
use crate::fail::OrFail;
use crate::process::{Finished, Program};

/// Rows that run at the same time. Most of them wait for a server or for a retry.
const WORKERS: usize = 6;

/// Time limit for a row, and thus for a user who waits for the message.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most lines on standard error: warnings and the error message.
const MOST_LINES: usize = 4;

/// Most lines for a usage error, including the options that clap lists.
const MOST_USAGE_LINES: usize = 12;

/// Most characters in an error message.
const MOST_CHARS: usize = 450;

/// Fragments of Rust's `Debug` output and of escaped strings, which no user should see.
const DEBUG_TEXT: [&str; 11] = [
    "Some(",
    "None)",
    "Ok(",
    "Err(",
    "Os {",
    "Error {",
    "Custom {",
    "\\n",
    "\\\"",
    "panicked at",
    "RUST_BACKTRACE",
];

/// A mistake, and how the user is told about it.
#[derive(Debug, Clone, Copy)]
pub struct UserMistake {
    /// The command line without the program's name; its words are separated by spaces. A leading
    /// `NAME=value` sets a variable, and `<FILE` redirects standard input. `{NAME}` stands for a
    /// word of the [`MistakeScene`], and `{target}` for a file in the row's own folder.
    pub line: &'static str,
    /// The exit code, or the HTTP status of a request.
    pub ending: i32,
    /// Where the mistake is: the part of the message that names a file, an address or an option.
    pub place: &'static str,
    /// The part of the message that says why it fails.
    pub why: &'static str,
    /// The part of the message that says what to do.
    pub way_out: &'static str,
}

impl fmt::Display for UserMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.line)
    }
}

/// Makes a table of [`UserMistake`]s, one after another: `"import {http}/gone {target}" => 3:
/// "where", "why", "what to do";`
#[macro_export]
macro_rules! user_mistakes {
    ($($line:literal => $ending:literal: $place:literal, $why:literal, $way_out:literal;)*) => {
        &[$($crate::mistake::UserMistake {
            line: $line, ending: $ending, place: $place, why: $why, way_out: $way_out,
        },)*]
    };
}

/// A program under test, and the files and servers that its user has.
pub struct MistakeScene {
    binary: PathBuf,
    name: String,
    words: BTreeMap<&'static str, String>,
    secrets: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    phrases: Vec<(&'static str, &'static str)>,
}

impl MistakeScene {
    /// The scene of the program `binary`.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        let binary = binary.into();
        let name =
            binary.file_name().or_fail("a program has a name").to_string_lossy().into_owned();
        Self {
            binary,
            name,
            words: BTreeMap::new(),
            secrets: Vec::new(),
            variables: Vec::new(),
            phrases: Vec::new(),
        }
    }

    /// Makes `{name}` in a row stand for `value`.
    #[must_use]
    pub fn word(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.words.insert(name, value.to_string());
        self
    }

    /// Makes `{name}` in a row stand for several words, which may contain other placeholders.
    #[must_use]
    pub fn phrase(mut self, name: &'static str, words: &'static str) -> Self {
        self.phrases.push((name, words));
        self
    }

    /// Adds a password that no output may show.
    #[must_use]
    pub fn secret(mut self, secret: &'static str) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sets the variable `name` for every command. Placeholders in the value are replaced as in
    /// rows.
    #[must_use]
    pub fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Makes all mistakes of the table. Fails the test with those rows that are not reported as
    /// they should be.
    #[track_caller]
    pub fn check(&self, table: &[UserMistake]) {
        cases::check_all_by(WORKERS, table.iter(), |row| self.check_command(row));
    }

    /// Like [`check`](Self::check) for HTTP requests: the rows are arguments of `curl`, and
    /// `common` ones are added to each.
    #[track_caller]
    pub fn check_requests(&self, common: &[&str], table: &[UserMistake]) {
        // One at a time: a server accepts only one upload at once.
        cases::check_all_by(1, table.iter(), |row| self.check_request(common, row));
    }

    fn check_command(&self, row: &UserMistake) {
        let folder = tempfile::tempdir().or_fail("a folder");
        let finished = self.program(&self.binary, row, folder.path()).start().wait();
        self.check_output(&finished, MOST_USAGE_LINES);
        assert_eq!(finished.code(), row.ending, "the exit code\n{}", finished.stderr);
        let sentence = self.sentence(&finished.stderr);
        self.check_sentence(row, &sentence, folder.path());
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).or_fail("the row's folder").flatten().collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    fn check_request(&self, common: &[&str], row: &UserMistake) {
        let folder = tempfile::tempdir().or_fail("a folder");
        let common =
            ["-sS", "--max-time", "30", "-w", "\n%{http_code}"].iter().chain(common).copied();
        let finished = self.program("curl", row, folder.path()).args(common).start().wait();
        self.check_output(&finished, MOST_LINES);
        finished.assert_success("curl");
        let (body, status) = finished.stdout.rsplit_once('\n').or_fail("a status");
        assert_eq!(status, row.ending.to_string(), "the status\n{body}");
        assert!(body.trim_end().lines().count() <= MOST_LINES, "{body}");
        self.check_sentence(row, body, folder.path());
    }

    /// Returns `program` with the row's arguments, variables and standard input.
    fn program(&self, program: impl Into<PathBuf>, row: &UserMistake, folder: &Path) -> Program {
        let mut program = Program::new(program).timeout(PATIENCE);
        for (name, value) in &self.variables {
            program = program.env(name, self.fill(value, folder));
        }
        let line = self.phrases.iter().fold(row.line.to_owned(), |line, (name, phrase)| {
            line.replace(&format!("{{{name}}}"), phrase)
        });
        let mut words = line.split(' ').peekable();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
            if !name.chars().all(|letter| letter.is_ascii_alphabetic() || letter == '_') {
                break;
            }
            program = program.env(name, self.fill(value, folder));
            words.next();
        }
        for word in words {
            program = match word.strip_prefix('<') {
                Some(file) => program.stdin_file(Path::new(&self.fill(file, folder))),
                None => program.arg(self.fill(word, folder)),
            };
        }
        program
    }

    /// Returns `text` with its placeholders replaced.
    fn fill(&self, text: &str, folder: &Path) -> String {
        let mut pieces = text.split('{');
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (name, rest) = piece.split_once('}').or_fail(text);
            match name {
                "folder" => filled.push_str(&folder.to_string_lossy()),
                "target" => filled.push_str(&folder.join("disk.img").to_string_lossy()),
                _ => {
                    filled.push_str(self.words.get(name).or_fail(format!("{text}: no word {name}")))
                }
            }
            filled.push_str(rest);
        }
        filled
    }

    /// Fails if the output is too long or contains text that no user should see.
    fn check_output(&self, finished: &Finished, most_lines: usize) {
        let output = format!("{}{}", finished.stdout, finished.stderr);
        assert!(!finished.crashed(), "{output}");
        let lines = finished.stderr.trim_end().lines().count();
        assert!(lines <= most_lines, "{lines} lines\n{output}");
        for text in DEBUG_TEXT {
            assert!(!output.contains(text), "{text:?} in\n{output}");
        }
        for secret in &self.secrets {
            assert!(!output.contains(secret), "the password {secret:?} in\n{output}");
        }
    }

    /// Returns the error message on standard error: the last line, or the paragraph of a usage
    /// error.
    fn sentence(&self, stderr: &str) -> String {
        if let Some((_, paragraph)) = format!("\n{stderr}").split_once("\nerror: ") {
            let paragraph = paragraph.split("\nUsage:").next().unwrap_or(paragraph);
            let paragraph = paragraph.split("\nFor more information").next().unwrap_or(paragraph);
            return paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        let last = stderr.trim_end().lines().last().unwrap_or_default();
        let sentence = last.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(": "));
        sentence
            .unwrap_or_else(|| panic!("the last line is not the program's sentence\n{stderr}"))
            .to_owned()
    }

    fn check_sentence(&self, row: &UserMistake, sentence: &str, folder: &Path) {
        assert!(sentence.chars().count() <= MOST_CHARS, "a long sentence: {sentence}");
        for (what, part) in [("place", row.place), ("why", row.why), ("way out", row.way_out)] {
            assert!(!part.is_empty(), "the row lacks the {what}; the sentence: {sentence}");
            let part = self.fill(part, folder);
            assert!(sentence.contains(&part), "{what} {part:?} in: {sentence}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = r#"case $1 in
        well) echo "sh: x: not found: $WHY; give --file" >&2; exit 3;;
        debug) echo 'sh: Os { code: 2 }: not found; give --file' >&2; exit 3;;
        secret) echo 'sh: hunter2: not found; give --file' >&2; exit 3;;
        usage) printf "error: 'b' is not one\n  tip: use 'a'\n\nUsage: sh\n" >&2; exit 2;;
        left) touch "$2"; echo 'sh: x: not found; give --file' >&2; exit 3;;
    esac"#;

    fn scene() -> MistakeScene {
        MistakeScene::new("/bin/sh").word("script", SCRIPT).word("file", "x").secret("hunter2")
    }

    #[test]
    fn a_message_with_all_three_parts_passes() {
        scene().check(user_mistakes! {
            "WHY=gone -c {script} sh well" => 3: "{file}", "not found: gone", "give --file";
            "-c {script} sh usage" => 2: "'b'", "is not one", "use 'a'";
        });
    }

    #[test]
    #[should_panic(expected = "5 cases failed")]
    fn every_row_that_is_reported_wrongly_is_found() {
        scene().check(user_mistakes! {
            "-c {script} sh well" => 4: "{file}", "not found", "give --file";
            "-c {script} sh well" => 3: "{file}", "not found", "give --path";
            "-c {script} sh debug" => 3: "Os", "not found", "give --file";
            "-c {script} sh secret" => 3: "hunter2", "not found", "give --file";
            "-c {script} sh left {target}" => 3: "x", "not found", "give --file";
        });
    }
}
