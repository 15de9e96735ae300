//! Tables of typical user mistakes: how a program or server reports each of them.
//!
//! A row is a command line without the program's name; its words are separated by spaces. A leading
//! `NAME=value` sets a variable, and `<FILE` redirects standard input. `{NAME}` stands for a word
//! of the [`MistakeScene`], and `{target}` for a file in the row's own folder.
//!
//! The exit codes and messages of a table are in a snapshot. Each message says where the mistake
//! is, why the command failed and what to do; read it as a user before you accept it with
//! `INSTA_UPDATE=always`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::cases;
use crate::fail::OrFail;
use crate::process::{Finished, Program};

/// Rows that run at the same time. Most of them wait for a server or for a retry.
const WORKERS: usize = 6;

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

/// A program under test, and the files and servers that its user has.
pub struct MistakeScene {
    binary: PathBuf,
    snapshots: PathBuf,
    name: String,
    words: BTreeMap<&'static str, String>,
    secrets: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    phrases: Vec<(&'static str, &'static str)>,
}

impl MistakeScene {
    /// The scene of the program `binary`, whose messages are in the folder `snapshots`.
    pub fn new(binary: impl Into<PathBuf>, snapshots: impl Into<PathBuf>) -> Self {
        let binary = binary.into();
        let name =
            binary.file_name().or_fail("a program has a name").to_string_lossy().into_owned();
        Self {
            binary,
            snapshots: snapshots.into(),
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

    /// Makes all mistakes of the table. Fails the test if a program ends with another code or
    /// message than in the snapshot `name`.
    #[track_caller]
    pub fn check(&self, name: &str, table: &[&str]) {
        self.compare(name, table, WORKERS, |row| self.make_mistake(row));
    }

    /// Like [`check`](Self::check) for HTTP requests: the rows are arguments of `curl`, and
    /// `common` ones are added to each. The snapshot has the statuses and bodies of the answers.
    #[track_caller]
    pub fn check_requests(&self, name: &str, common: &[&str], table: &[&str]) {
        // One at a time: a server accepts only one upload at once.
        self.compare(name, table, 1, |row| self.send_request(common, row));
    }

    /// Compares what `report` returns for the rows with the snapshot.
    #[track_caller]
    fn compare(
        &self,
        name: &str,
        table: &[&str],
        workers: usize,
        report: impl Fn(&str) -> String + Sync,
    ) {
        let reports = Mutex::new(vec![String::new(); table.len()]);
        let rows = table.iter().enumerate().map(|(index, line)| Row { index, line });
        cases::check_all_by(workers, rows, |row| {
            let reported = format!("$ {}\n{}\n", row.line, report(row.line));
            reports.lock().ok().or_fail("the reports")[row.index] = reported;
        });
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&self.snapshots);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let reports = reports.into_inner().ok().or_fail("the reports").join("\n");
        settings.bind(|| insta::assert_snapshot!(name, reports));
    }

    /// Runs a command. Returns its exit code and error message.
    fn make_mistake(&self, row: &str) -> String {
        let folder = tempfile::tempdir().or_fail("a folder");
        let finished = self.program(&self.binary, row, folder.path()).run();
        self.check_output(&finished, MOST_USAGE_LINES);
        let sentence = self.sentence(&finished.stderr);
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).or_fail("the row's folder").flatten().collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        format!("{} {}", finished.code(), self.plain(&sentence, folder.path()))
    }

    /// Sends a request. Returns the status and the body of the answer.
    fn send_request(&self, common: &[&str], row: &str) -> String {
        let folder = tempfile::tempdir().or_fail("a folder");
        let common =
            ["-sS", "--max-time", "30", "-w", "\n%{http_code}"].iter().chain(common).copied();
        let finished = self.program("curl", row, folder.path()).args(common).run();
        self.check_output(&finished, MOST_LINES);
        finished.assert_success("curl");
        let (body, status) = finished.stdout.rsplit_once('\n').or_fail("a status");
        assert!(body.trim_end().lines().count() <= MOST_LINES, "{body}");
        format!("{status} {}", self.plain(body.trim_end(), folder.path()))
    }

    /// Returns a message that is the same in every run: with placeholders for files and addresses.
    fn plain(&self, sentence: &str, folder: &Path) -> String {
        assert!(sentence.chars().count() <= MOST_CHARS, "a long sentence: {sentence}");
        let mut plain = sentence.replace(&*folder.to_string_lossy(), "{folder}");
        let mut words: Vec<_> = self.words.iter().filter(|(_, value)| value.len() > 5).collect();
        // `{files}/x` may be a word of its own.
        words.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        for (name, value) in words {
            // Addresses also appear as `127.0.0.1 port 8443`.
            for spelling in [value.clone(), value.replace(':', " port ")] {
                plain = plain.replace(&spelling, &format!("{{{name}}}"));
            }
        }
        plain
    }

    /// Returns `program` with the row's arguments, variables and standard input.
    fn program(&self, program: impl Into<PathBuf>, row: &str, folder: &Path) -> Program {
        let mut program = Program::new(program);
        for (name, value) in &self.variables {
            program = program.env(name, self.fill(value, folder));
        }
        let line = self.phrases.iter().fold(row.to_owned(), |line, (name, phrase)| {
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
}

/// A row of a table.
struct Row<'a> {
    index: usize,
    line: &'a str,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.line)
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
        let snapshots = concat!(env!("CARGO_MANIFEST_DIR"), "/src/snapshots");
        MistakeScene::new("/bin/sh", snapshots)
            .word("script", SCRIPT)
            .word("file", "a-file")
            .secret("hunter2")
    }

    #[test]
    fn a_message_is_compared_with_the_snapshot() {
        scene().check("mistakes", &["WHY={file} -c {script} sh well", "-c {script} sh usage"]);
    }

    #[test]
    #[should_panic(expected = "3 cases failed")]
    fn every_row_that_is_reported_wrongly_is_found() {
        let rows =
            ["debug", "secret", "left {target}"].map(|row| format!("-c {{script}} sh {row}"));
        scene().check("wrong", &rows.each_ref().map(String::as_str));
    }
}
