//! Completion as shells offer it at the Tab key, by the script that a program prints for them.

use std::path::Path;
use std::time::Duration;

use crate::fail::OrFail;
use crate::process::Program;
use crate::tools;

/// Longest time for a shell to start and to complete one word.
const LIMIT: Duration = Duration::from_secs(60);

/// A shell that completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash.
    Bash,
    /// fish.
    Fish,
    /// zsh.
    Zsh,
}

impl Shell {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bash, Self::Fish, Self::Zsh];

    /// What it offers for the last of `words`, arguments of `program`: in alphabetical order, without descriptions, folders without a
    /// slash. Words need no quotes. Files are those of the test's own folder.
    pub fn candidates(self, program: &Path, words: &[&str]) -> Vec<String> {
        let name = program.file_name().and_then(|name| name.to_str()).or_fail("a name");
        let folder = program.parent().or_fail("a folder");
        let line = || [&[name], words].concat().join(" ");
        let (shell, script, line) = match self {
            Self::Bash => ("bash", include_str!("complete.bash"), break_words(words)),
            Self::Fish => ("fish", include_str!("complete.fish"), vec![line()]),
            Self::Zsh => ("zsh", include_str!("complete.zsh"), vec![line()]),
        };
        // None reads the settings of who runs the test.
        let start: &[&str] = match self {
            Self::Bash => &["--norc", "-c", script, "bash"],
            Self::Fish => &["--no-config", "-c", script],
            Self::Zsh => &["-f", "-c", script, "zsh"],
        };
        // fish makes folders in its home.
        let home = tempfile::tempdir().or_fail("a folder");
        let finished = Program::new(tools::find(shell))
            .args(start.iter().copied())
            .arg(name)
            .args(line)
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("HOME", home.path())
            .timeout(LIMIT)
            .run();
        finished.assert_success(shell);
        let word = |line: &str| line.split('\t').next().unwrap_or(line).trim_end_matches('/').to_owned();
        let mut candidates: Vec<String> = finished.stdout.lines().map(word).collect();
        candidates.sort();
        candidates.dedup();
        candidates
    }
}

/// Fails the test unless each shell offers exactly `expected`, in alphabetical order, for the last of `words`.
#[track_caller]
pub fn assert_completion(program: impl AsRef<Path>, words: &[&str], expected: &[&str]) {
    for shell in Shell::ALL {
        assert_eq!(shell.candidates(program.as_ref(), words), expected, "{shell:?}: {words:?}");
    }
}

/// `words` as bash breaks them: at `:` and `=`, which are words of their own.
fn break_words(words: &[&str]) -> Vec<String> {
    let is_break = |letter: char| matches!(letter, ':' | '=');
    let mut pieces = Vec::new();
    for word in words {
        let letters: Vec<char> = word.chars().collect();
        let runs = letters.chunk_by(|one, next| is_break(*one) == is_break(*next));
        pieces.extend(runs.map(|run| run.iter().collect::<String>()));
        if word.is_empty() {
            pieces.push(String::new());
        }
    }
    pieces
}
