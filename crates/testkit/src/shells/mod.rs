//! Shell completion as users get it with the Tab key, through the script that a program prints.

use std::path::Path;

use crate::fail::OrFail;
use crate::process::Program;
use crate::tools;

/// A shell with completion.
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
    /// All shells.
    pub const ALL: [Self; 3] = [Self::Bash, Self::Fish, Self::Zsh];

    /// Returns the candidates for the last of `words`, the arguments of `program`, in alphabetical
    /// order, without descriptions and without the slash after folders. Words must not need
    /// quotes. Files are those of the test's working directory.
    pub fn candidates(self, program: &Path, words: &[&str]) -> Vec<String> {
        let name = program.file_name().and_then(|name| name.to_str()).or_fail("a name");
        let folder = program.parent().or_fail("a folder");
        let line = || [&[name], words].concat().join(" ");
        let (shell, script, line) = match self {
            Self::Bash => ("bash", include_str!("complete.bash"), break_words(words)),
            Self::Fish => ("fish", include_str!("complete.fish"), vec![line()]),
            Self::Zsh => ("zsh", include_str!("complete.zsh"), vec![line()]),
        };
        // No shell reads the settings of the user who runs the test.
        let start: &[&str] = match self {
            Self::Bash => &["--norc", "-c", script, "bash"],
            Self::Fish => &["--no-config", "-c", script],
            Self::Zsh => &["-f", "-c", script, "zsh"],
        };
        // fish creates folders in its home directory.
        let home = tempfile::tempdir().or_fail("a folder");
        let finished = Program::new(tools::find(shell))
            .args(start.iter().copied())
            .arg(name)
            .args(line)
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("HOME", home.path())
            .run();
        finished.assert_success(shell);
        let word =
            |line: &str| line.split('\t').next().unwrap_or(line).trim_end_matches('/').to_owned();
        let mut candidates: Vec<String> = finished.stdout.lines().map(word).collect();
        candidates.sort();
        candidates.dedup();
        candidates
    }
}

/// Fails the test unless each shell offers exactly `expected`, in alphabetical order, for the last
/// of `words`.
#[track_caller]
pub fn assert_completion(program: impl AsRef<Path>, words: &[&str], expected: &[&str]) {
    for shell in Shell::ALL {
        assert_eq!(shell.candidates(program.as_ref(), words), expected, "{shell:?}: {words:?}");
    }
}

/// Splits `words` as bash does: `:` and `=` become words of their own.
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
