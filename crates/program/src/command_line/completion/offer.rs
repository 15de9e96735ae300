//! Parses an unfinished command line and determines the candidates for its last word.

use std::borrow::Cow;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, ValueHint};

/// The candidates for a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CompletionOffer {
    /// Candidate lines. Each consists of a word, followed by a tab and a description if there is
    /// one.
    Words(Vec<String>),
    /// File names, which the shell completes.
    Files,
    /// Directory names, which the shell completes.
    Folders,
    /// Values that the program lists itself.
    ListedValues,
}

/// A command line up to its unfinished last word.
pub struct CompletionLine<'a> {
    /// The command or subcommand that the arguments belong to.
    command: &'a Command,
    /// The flags given so far, with their values.
    given: Vec<(&'a Arg, &'a str)>,
    /// Number of positional arguments so far.
    positionals: usize,
    /// The flag whose value is expected next.
    pending: Option<&'a Arg>,
    /// True after `--`: all following words are positional arguments.
    is_literal: bool,
    /// The unfinished word.
    last: &'a str,
}

impl<'a> CompletionLine<'a> {
    /// Parses the `arguments` of `command`.
    pub(super) fn parse_arguments(command: &'a Command, arguments: &'a [Cow<'_, str>]) -> Self {
        let (last, before) =
            arguments.split_last().map_or(("", arguments), |(last, before)| (last, before));
        let mut line = Self {
            command,
            given: Vec::new(),
            positionals: 0,
            pending: None,
            is_literal: false,
            last,
        };
        for word in before {
            line.add_word(word);
        }
        line
    }

    fn add_word(&mut self, word: &'a str) {
        if let Some(flag) = self.pending.take() {
            self.given.push((flag, word));
        } else if self.is_literal {
            self.positionals += 1;
        } else if word == "--" {
            self.is_literal = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            if let Some(flag) = self.find_flag(name) {
                self.note_flag(flag, value);
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            self.add_letters(letters);
        } else if let Some(command) = self.command.find_subcommand(word) {
            (self.command, self.positionals) = (command, 0);
        } else {
            self.positionals += 1;
        }
    }

    /// Adds short flags in the form `-qn NAME` or `-nNAME`.
    fn add_letters(&mut self, letters: &'a str) {
        for (at, letter) in letters.char_indices() {
            let flag = self.command.get_arguments();
            let Some(flag) = flag.into_iter().find(|flag| flag.get_short() == Some(letter)) else {
                return;
            };
            let rest = letters.get(at + letter.len_utf8()..).filter(|rest| !rest.is_empty());
            let is_valued = flag.get_action().takes_values();
            self.note_flag(flag, rest.filter(|_| is_valued));
            if is_valued {
                return;
            }
        }
    }

    fn find_flag(&self, long: &str) -> Option<&'a Arg> {
        self.command.get_arguments().find(|flag| flag.get_long() == Some(long))
    }

    fn note_flag(&mut self, flag: &'a Arg, value: Option<&'a str>) {
        match value {
            None if flag.get_action().takes_values() => self.pending = Some(flag),
            value => self.given.push((flag, value.unwrap_or_default())),
        }
    }

    /// The candidates for the last word.
    pub(super) fn last_word_offer(&self) -> CompletionOffer {
        if let Some(flag) = self.pending {
            return self.value_offer(flag, "");
        }
        if self.last.starts_with('-') && !self.is_literal {
            return match self.last.split_once('=') {
                Some((name, _)) => {
                    let flag = name.strip_prefix("--").and_then(|long| self.find_flag(long));
                    flag.map_or(CompletionOffer::Words(Vec::new()), |flag| {
                        self.value_offer(flag, &format!("{name}="))
                    })
                }
                None => self.flag_offer(),
            };
        }
        if self.command.has_subcommands() {
            let commands = self.command.get_subcommands().filter(|command| !command.is_hide_set());
            return self.matching_words(
                commands.map(|command| (command.get_name().to_owned(), command.get_about())),
            );
        }
        match self.command.get_positionals().nth(self.positionals) {
            Some(positional) => self.value_offer(positional, ""),
            None => CompletionOffer::Words(Vec::new()),
        }
    }

    fn value_offer(&self, argument: &Arg, prefix: &str) -> CompletionOffer {
        match argument.get_value_hint() {
            ValueHint::FilePath | ValueHint::AnyPath => return CompletionOffer::Files,
            ValueHint::DirPath => return CompletionOffer::Folders,
            ValueHint::Other => return CompletionOffer::ListedValues,
            _ => {}
        }
        let values = argument.get_possible_values();
        let values = values.iter().filter(|value| !value.is_hide_set());
        self.matching_words(
            values.map(|value| (format!("{prefix}{}", value.get_name()), value.get_help())),
        )
    }

    fn flag_offer(&self) -> CompletionOffer {
        let may_stand = |flag: &&Arg| {
            let is_given = self.given.iter().any(|(given, _)| given.get_id() == flag.get_id());
            !flag.is_hide_set()
                && (!is_given || matches!(flag.get_action(), ArgAction::Count | ArgAction::Append))
        };
        let flags = self.command.get_arguments().filter(may_stand);
        self.matching_words(
            flags.filter_map(|flag| Some((format!("--{}", flag.get_long()?), flag.get_help()))),
        )
    }

    /// Returns the candidates that begin with the last word.
    fn matching_words<'b>(
        &self,
        all: impl Iterator<Item = (String, Option<&'b StyledStr>)>,
    ) -> CompletionOffer {
        let fitting = all.filter(|(word, _)| word.starts_with(self.last));
        CompletionOffer::Words(fitting.map(|(word, help)| candidate_line(&word, help)).collect())
    }

    /// True if a word before the last one names a subcommand of `program`.
    pub(super) fn is_below(&self, program: &Command) -> bool {
        self.command.get_name() != program.get_name()
    }

    /// Returns the value of the option `id`, if it was given. The last occurrence counts.
    pub fn option_value(&self, id: &str) -> Option<&'a str> {
        let mut given = self.given.iter().filter(|(flag, _)| flag.get_id() == id);
        given.next_back().map(|&(_, value)| value)
    }

    /// Returns the candidate lines for the `values` that begin with the last word.
    pub(super) fn matching_values(&self, values: Vec<String>) -> Vec<String> {
        let fitting = values.into_iter().filter(|value| value.starts_with(self.last));
        fitting.map(|value| candidate_line(&value, None)).collect()
    }
}

fn candidate_line(word: &str, help: Option<&StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    match help.lines().next() {
        Some(first) => format!("{word}\t{first}\n"),
        None => format!("{word}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::{Parser, Subcommand, ValueEnum};

    use super::super::super::build_command;
    use super::*;

    /// A program with arguments of each kind.
    #[derive(Parser)]
    struct Cli {
        /// For all commands
        #[arg(long, global = true)]
        _memory: Option<u64>,
        #[command(subcommand)]
        _command: Own,
    }

    #[derive(Subcommand)]
    enum Own {
        /// Send an image
        Upload {
            #[arg(value_hint = ValueHint::FilePath)]
            _image: PathBuf,
            #[arg(value_hint = ValueHint::Other)]
            _target: String,
            #[arg(short, long)]
            _namespace: Option<String>,
            #[arg(short, long)]
            _quiet: bool,
            #[arg(short, long, action = ArgAction::Count)]
            _verbose: u8,
            #[arg(long, value_hint = ValueHint::DirPath)]
            _scratch: Option<PathBuf>,
            #[arg(long, value_enum)]
            _route: Option<Route>,
        },
        /// Tell how far it is
        Status,
        /// For programs
        #[command(hide = true)]
        Internal,
    }

    #[derive(Clone, Copy, ValueEnum)]
    enum Route {
        Auto,
        OnePass,
    }

    fn read<T>(arguments: &str, look: impl FnOnce(&CompletionLine<'_>) -> T) -> T {
        let mut command = build_command::<Cli>();
        command.build();
        let arguments: Vec<_> = arguments.split(' ').map(Cow::Borrowed).collect();
        look(&CompletionLine::parse_arguments(&command, &arguments))
    }

    #[test]
    fn the_words_before_decide_what_is_offered() {
        let candidates = |text: &str| {
            CompletionOffer::Words(
                text.split_terminator(' ').map(|word| format!("{word}\n")).collect(),
            )
        };
        for (line, expected) in [
            ("upload a.raw ", CompletionOffer::ListedValues),
            ("upload a.raw --namespace vms pv", CompletionOffer::ListedValues),
            ("upload -qvn vms a.raw --route=auto ", CompletionOffer::ListedValues),
            ("--memory 5 upload -- -a.raw ", CompletionOffer::ListedValues),
            ("upload ", CompletionOffer::Files),
            ("upload ./a", CompletionOffer::Files),
            ("upload --scratch ", CompletionOffer::Folders),
            ("upload --scratch=/t", CompletionOffer::Folders),
            ("upload a.raw dv/a ", candidates("")),
            ("upload --namespace ", candidates("")),
            ("status ", candidates("")),
            ("status --nothing=", candidates("")),
            ("sta", CompletionOffer::Words(vec!["status\tTell how far it is\n".to_owned()])),
            ("help st", CompletionOffer::Words(vec!["status\tTell how far it is\n".to_owned()])),
            ("completions b", candidates("bash")),
            ("upload --ro", candidates("--route")),
            (
                "upload --me",
                CompletionOffer::Words(vec!["--memory\tFor all commands\n".to_owned()]),
            ),
            ("upload --route ", candidates("auto one-pass")),
            ("upload --route=o", candidates("--route=one-pass")),
        ] {
            assert_eq!(read(line, |line| line.last_word_offer()), expected, "{line}");
        }
        let candidates = |line| match read(line, |line| line.last_word_offer()) {
            CompletionOffer::Words(lines) => lines.concat(),
            other => panic!("{line}: {other:?}"),
        };
        let commands = candidates("");
        assert!(commands.contains("help") && !commands.contains("internal"), "{commands}");
        let flags = candidates("upload -q -v -");
        assert!(flags.contains("--help") && flags.contains("--verbose"), "{flags}");
        assert!(!flags.contains("--quiet"), "{flags}");
    }

    #[test]
    fn a_program_can_read_the_options_of_the_line_to_list_values() {
        read("upload -nvms a.raw dv/a", |line| {
            assert_eq!(line.option_value("_namespace"), Some("vms"));
            assert_eq!(line.option_value("_scratch"), None);
            let all = ["dv/ab", "pvc/a"].map(str::to_owned).to_vec();
            assert_eq!(line.matching_values(all), ["dv/ab\n"]);
        });
    }
}
