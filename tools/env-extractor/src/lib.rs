//! `cdi-env-extractor`: writes the environment of its container to a file, from which the importer
//! creates labels.
//!
//! In a node pull by an image volume, an init container of the user's image runs it. Such an image
//! may hold nothing but a disk, so the program needs no libraries and no other files.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Default path of the file.
const ENV_FILE: &str = "/shared/env";

/// Exit code for an invalid command line, as in Go's `flag` package.
const USAGE_CODE: u8 = 2;

const USAGE: &str = "Usage of cdi-env-extractor:
  -env-file text
        file to write the environment to, one variable per line (default /shared/env)
  -h
        show this text
  -help
        show this text
  -version
        show the program's version";

/// The work that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Extract(PathBuf),
    ShowUsage,
    ShowVersion,
}

/// Runs the command in `words`, the command line without the program's name, on `variables`.
pub fn main(
    words: impl Iterator<Item = OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> ExitCode {
    let (line, code) = match parse_flags(words) {
        Ok(Command::Extract(file)) => match extract(&file, variables) {
            Ok(()) => {
                let file = file.display();
                (format!("Extracted environment variables to {file}"), ExitCode::SUCCESS)
            }
            Err(message) => (message, ExitCode::FAILURE),
        },
        Ok(Command::ShowUsage) => (USAGE.to_owned(), ExitCode::SUCCESS),
        Ok(Command::ShowVersion) => {
            (format!("cdi-env-extractor {}", env!("CARGO_PKG_VERSION")), ExitCode::SUCCESS)
        }
        Err(message) => (format!("{message}\n{USAGE}"), ExitCode::from(USAGE_CODE)),
    };
    // Kubernetes collects logs from standard error. An error there does not change the result.
    writeln!(io::stderr(), "{line}").ok();
    code
}

/// Parses flags as Go's `flag` package does: with one dash or two, and a value behind `=` or in the
/// next word. Parsing stops at the first word without a dash.
fn parse_flags(mut words: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut file = PathBuf::from(ENV_FILE);
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        let Some(flag) = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-")) else {
            break;
        };
        if flag.is_empty() {
            break;
        }
        let (name, value) = match flag.iter().position(|byte| *byte == b'=') {
            Some(at) => (flag.get(..at).unwrap_or_default(), flag.get(at + 1..)),
            None => (flag, None),
        };
        match name {
            b"h" | b"help" => return Ok(Command::ShowUsage),
            b"version" => return Ok(Command::ShowVersion),
            b"env-file" => {
                let value =
                    value.map(|value| OsStr::from_bytes(value).to_owned()).or_else(|| words.next());
                file = value.ok_or("flag needs an argument: -env-file")?.into();
            }
            other => {
                return Err(format!("flag provided but not defined: -{}", other.escape_ascii()));
            }
        }
    }
    Ok(Command::Extract(file))
}

/// Writes `variables` to `path`, in their order, one per line. A line break in a value is written
/// unchanged, as in CDI's program, so the lines after it are not variables.
fn extract(
    path: &Path,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(), String> {
    let failed =
        |doing: &str, error: &io::Error| format!("Failed {doing} {}: {error}", path.display());
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        // The importer reads it as the same user.
        .mode(0o600)
        .open(path)
        .map_err(|error| failed("creating", &error))?;
    let mut text = Vec::new();
    for (name, value) in variables {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    file.write_all(&text).map_err(|error| failed("writing", &error))?;
    // Dropping a `File` ignores errors of closing it, so errors are reported here.
    File::sync_all(&file).map_err(|error| failed("syncing", &error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn parse(words: &[&str]) -> Result<Command, String> {
        parse_flags(words.iter().map(OsString::from))
    }

    #[test]
    fn flags_are_those_of_go() {
        for (words, file) in [
            (&[][..], ENV_FILE),
            (&["-env-file", "/a"], "/a"),
            (&["--env-file=/a=b"], "/a=b"),
            (&["-env-file="], ""),
            (&["word", "-h"], ENV_FILE),
            (&["--", "-h"], ENV_FILE),
        ] {
            assert_eq!(parse(words), Ok(Command::Extract(file.into())), "{words:?}");
        }
        for word in ["-h", "--help"] {
            assert_eq!(parse(&[word]), Ok(Command::ShowUsage));
        }
        assert_eq!(parse(&["-version"]), Ok(Command::ShowVersion));
        assert_eq!(parse(&["-x=1"]), Err("flag provided but not defined: -x".to_owned()));
        assert_eq!(parse(&["-env-file"]), Err("flag needs an argument: -env-file".to_owned()));
    }
}
