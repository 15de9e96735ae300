//! Parses the klog flags that CDI's pods pass, and `-version`, in the same way as Go's `flag`
//! package.
//!
//! `-x` and `--x` are the same. A value follows after `=` or a space, and a boolean needs no
//! value. Parsing stops at `--` and at the first word that does not begin with a dash. Of the klog
//! flags only the verbosity has an effect: logs always go to stderr.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;

use crate::env::go_bool;
use crate::stdout::print_stdout;

/// The kind of value that a flag takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagKind {
    Bool,
    Number,
    Text,
}

/// The flags of klog and our own, each with its name, the kind of its value, and a short
/// description.
const FLAGS: [(&str, FlagKind, &str); 16] = [
    ("add_dir_header", FlagKind::Bool, "accepted, no effect"),
    ("alsologtostderr", FlagKind::Bool, "accepted, logs always go to stderr"),
    ("log_backtrace_at", FlagKind::Text, "accepted, no effect"),
    ("log_dir", FlagKind::Text, "accepted, no effect: logs go to stderr"),
    ("log_file", FlagKind::Text, "accepted, no effect: logs go to stderr"),
    ("log_file_max_size", FlagKind::Number, "accepted, no effect: logs go to stderr"),
    ("logtostderr", FlagKind::Bool, "accepted, logs always go to stderr"),
    ("one_output", FlagKind::Bool, "accepted, no effect"),
    ("skip_headers", FlagKind::Bool, "accepted, no effect"),
    ("skip_log_headers", FlagKind::Bool, "accepted, no effect"),
    ("stderrthreshold", FlagKind::Text, "accepted, no effect"),
    ("v", FlagKind::Number, "log verbosity: 1 information, 3 debugging, 5 traces"),
    ("vmodule", FlagKind::Text, "accepted, no effect"),
    ("h", FlagKind::Bool, "show this text"),
    ("help", FlagKind::Bool, "show this text"),
    ("version", FlagKind::Bool, "show the program's version"),
];

/// A flag that belongs to one program and not to klog. Its value is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFlag {
    /// The name of the flag without dashes.
    pub name: &'static str,
    /// A short description of the flag.
    pub purpose: &'static str,
}

/// The values of the flags on a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KlogFlags {
    /// `-v`: log verbosity. 0 if not given; larger values are capped at 255.
    pub verbosity: u8,
    /// `-h` or `-help`: print the usage text and exit 0.
    help: bool,
    /// `-version`: print the version and exit 0. This is the form for the entry point of an image.
    /// `--version` as the first argument selects command-line mode instead.
    version: bool,
    own: Vec<(&'static str, String)>,
}

/// The error of an invalid command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FlagError(String);

impl FlagError {
    /// The exit code for an invalid command line, as in Go's `flag` package.
    const EXIT_CODE: u8 = 2;

    /// Creates the error for a value that does not have the kind that its flag takes.
    fn wrong_value(name: &str, value: &str, expected: &str) -> Self {
        Self(format!("invalid value {value:?} for flag -{name}: {expected} is needed"))
    }

    /// Prints the error and the flags of `program` to stderr, and returns the exit code.
    pub fn print_usage(&self, program: &str, own: &[OwnFlag]) -> ExitCode {
        // stderr may be closed; the exit code reports the error even then.
        write!(io::stderr(), "{self}\n{}", usage_text(program, own)).ok();
        ExitCode::from(Self::EXIT_CODE)
    }
}

/// Parses klog's flags and the `own` flags of `program`. `arguments` does not include the program's
/// name. If they are invalid, or ask for the usage text or the version, prints that and returns the
/// exit code.
pub fn read_flags(
    program: &str,
    own: &[OwnFlag],
    arguments: &[OsString],
) -> Result<KlogFlags, ExitCode> {
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    let flags = parse_flags(own, arguments).map_err(|error| error.print_usage(program, own))?;
    if flags.help {
        write!(io::stderr(), "{}", usage_text(program, own)).ok();
        return Err(ExitCode::SUCCESS);
    }
    if flags.version {
        let printed = print_stdout(format!("{program} {}\n", *crate::VERSION).as_bytes());
        return Err(if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Ok(flags)
}

fn parse_flags(
    own: &[OwnFlag],
    arguments: impl IntoIterator<Item = String>,
) -> Result<KlogFlags, FlagError> {
    let mut flags = KlogFlags::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        // As in Go's `flag`, the flags end at the first word without a dash, or at dashes alone.
        // The rest is ignored.
        let Some(body) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            break;
        };
        if body.is_empty() {
            break;
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(FlagError(format!("bad flag syntax: {argument}")));
        }
        let Some((name, kind, _)) = known_flags(own).find(|(known, ..)| *known == name) else {
            return Err(FlagError(format!("flag provided but not defined: -{name}")));
        };
        let value = match (value, kind) {
            (Some(value), _) => value,
            (None, FlagKind::Bool) => "true".to_owned(),
            (None, _) => arguments
                .next()
                .ok_or_else(|| FlagError(format!("flag needs an argument: -{name}")))?,
        };
        flags.set_value(name, kind, &value)?;
    }
    Ok(flags)
}

/// True if `argument` is a klog flag whose value is the next word, even if that word looks like a
/// flag.
#[cfg(feature = "commands")]
pub(crate) fn takes_next_word(argument: &str) -> bool {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
    FLAGS.iter().any(|(known, kind, _)| *kind == FlagKind::Text && Some(*known) == name)
}

/// Returns the flags of klog and of the program.
fn known_flags(own: &[OwnFlag]) -> impl Iterator<Item = (&'static str, FlagKind, &'static str)> {
    let own = own.iter().map(|flag| (flag.name, FlagKind::Text, flag.purpose));
    FLAGS.into_iter().chain(own)
}

impl KlogFlags {
    /// Returns the value of one of the program's own flags, if it was given. The last occurrence
    /// counts.
    pub fn own_value(&self, name: &str) -> Option<&str> {
        let given = self.own.iter().rev().find(|(known, _)| *known == name);
        given.map(|(_, value)| value.as_str())
    }

    /// Returns the values of the program's own flags `names`. Fails if one of them is missing or
    /// empty.
    pub fn required_values<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[String; N], FlagError> {
        let values = names.map(|name| self.own_value(name).unwrap_or_default().to_owned());
        let missing: Vec<String> = names
            .iter()
            .zip(&values)
            .filter(|(_, value)| value.is_empty())
            .map(|(name, _)| format!("-{name}"))
            .collect();
        if missing.is_empty() {
            return Ok(values);
        }
        let missing = missing.join(", ");
        Err(FlagError(format!("One or more mandatory parameters are missing: {missing}")))
    }

    /// Parses the value of the program's own flag `name`, or `default` if it was not given.
    /// `expected` is the kind of value that the flag takes.
    pub fn parse_value<T: FromStr>(
        &self,
        name: &str,
        default: &str,
        expected: &str,
    ) -> Result<T, FlagError> {
        let text = self.own_value(name).unwrap_or(default);
        text.parse().map_err(|_| FlagError::wrong_value(name, text, expected))
    }

    fn set_value(
        &mut self,
        name: &'static str,
        kind: FlagKind,
        value: &str,
    ) -> Result<(), FlagError> {
        let wrong = |expected| FlagError::wrong_value(name, value, expected);
        match kind {
            // klog's text flags have no effect, but they are stored too. A list of them to skip
            // could become outdated.
            FlagKind::Text => self.own.push((name, value.to_owned())),
            FlagKind::Bool => {
                let on = go_bool(value).map_err(|_| wrong("true or false"))?;
                match name {
                    "h" | "help" => self.help = on,
                    "version" => self.version = on,
                    _ => {}
                }
            }
            FlagKind::Number => {
                let number: u64 = value.parse().map_err(|_| wrong("a whole number"))?;
                if name == "v" {
                    self.verbosity = u8::try_from(number).unwrap_or(u8::MAX);
                }
            }
        }
        Ok(())
    }
}

/// Returns the usage text, which lists all flags.
fn usage_text(program: &str, own: &[OwnFlag]) -> String {
    let mut text = format!("Usage of {program}:\n");
    for (name, kind, purpose) in known_flags(own) {
        let value = match kind {
            FlagKind::Bool => "",
            FlagKind::Number => " number",
            FlagKind::Text => " text",
        };
        text.push_str(&format!("  -{name}{value}\n        {purpose}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [OwnFlag; 1] = [OwnFlag { name: "server", purpose: "where it is" }];

    fn parsed(line: &str) -> Result<KlogFlags, FlagError> {
        parse_flags(&OWN, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn verbosity_is_read_in_every_spelling() {
        for line in [
            "-v=3",
            "--v=3",
            "-v 3",
            "--v 3",
            "-alsologtostderr -v=3",
            "-v=1 -v=3",
            "-logtostderr=false -stderrthreshold WARNING -vmodule a=2 -log_dir /tmp --v 3",
            "-log_file=x -log_file_max_size 12 -log_backtrace_at f.go:1 -one_output -skip_headers -v=3",
            "-skip_log_headers -add_dir_header=T -v=3",
        ] {
            assert_eq!(parsed(line).unwrap().verbosity, 3, "{line}");
        }
        assert_eq!(parsed(""), Ok(KlogFlags::default()));
        assert_eq!(parsed("-v=1000").unwrap().verbosity, u8::MAX);
    }

    #[test]
    fn flags_end_at_two_dashes_or_a_word() {
        for line in ["-- -v=3", "- -v=3", "word -unknown", "-alsologtostderr false -v=2"] {
            assert_eq!(parsed(line), Ok(KlogFlags::default()), "{line}");
        }
    }

    #[test]
    fn flag_errors_name_the_flag_and_its_value() {
        for (line, text) in [
            ("-nope", "flag provided but not defined: -nope"),
            ("--nope=1", "flag provided but not defined: -nope"),
            ("-v", "flag needs an argument: -v"),
            ("-v=high", "invalid value \"high\" for flag -v: a whole number is needed"),
            ("-v -1", "invalid value \"-1\" for flag -v: a whole number is needed"),
            (
                "-one_output=maybe",
                "invalid value \"maybe\" for flag -one_output: true or false is needed",
            ),
            ("---v=3", "bad flag syntax: ---v=3"),
            ("-=3", "bad flag syntax: -=3"),
        ] {
            assert_eq!(parsed(line).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_programs_own_flags_are_read_beside_those_of_klog() {
        let flags = parsed("-server=a --server b -v 2").unwrap();
        assert_eq!((flags.own_value("server"), flags.verbosity), (Some("b"), 2));
        assert_eq!(parsed("-v=1").unwrap().own_value("server"), None);
    }

    #[test]
    fn usage_lists_every_flag() {
        assert!(parsed("-help").unwrap().help && parsed("--h").unwrap().help);
        assert!(parsed("-alsologtostderr -version").unwrap().version);
        let usage = usage_text("cdi-importer", &OWN);
        assert!(usage.starts_with("Usage of cdi-importer:\n"));
        for (name, ..) in known_flags(&OWN) {
            assert!(usage.contains(&format!("  -{name}")), "{name}");
        }
    }
}
