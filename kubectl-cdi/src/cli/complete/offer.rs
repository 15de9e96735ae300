//! The place of an unfinished word on a command line, and what may stand there.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, ValueHint};

use crate::cluster::ClusterOptions;

/// What may stand in the place of a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CompletionOffer {
    /// These lines: a word, and behind a tab what it means.
    Words(Vec<String>),
    /// The path of a file.
    Files,
    /// A DataVolume or a claim.
    Targets,
}

/// A line up to the word that is not finished.
pub(super) struct CompletionLine<'a> {
    /// The command whose arguments these are.
    command: &'a Command,
    /// Flags that are given, with their values.
    given: Vec<(&'a Arg, &'a str)>,
    /// Arguments that are no flags.
    positionals: usize,
    /// The flag whose value comes next.
    pending: Option<&'a Arg>,
    /// True behind `--`: there are no flags any more.
    is_literal: bool,
    /// The word that is not finished.
    pub(super) last: &'a str,
}

impl<'a> CompletionLine<'a> {
    /// The line of `words`, the arguments of `command`.
    pub(super) fn parse_words(command: &'a Command, words: &'a [Cow<'_, str>]) -> Self {
        let (last, before) = words.split_last().map_or(("", words), |(last, before)| (last, before));
        let mut line =
            Self { command, given: Vec::new(), positionals: 0, pending: None, is_literal: false, last };
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

    /// Adds `-qn NAME` or `-nNAME`.
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

    /// What may stand in the place of the last word.
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
        if argument.get_id() == "target" {
            return CompletionOffer::Targets;
        }
        if argument.get_value_hint() == ValueHint::FilePath {
            return CompletionOffer::Files;
        }
        let values = argument.get_possible_values();
        let values = values.iter().filter(|value| !value.is_hide_set());
        self.matching_words(values.map(|value| (format!("{prefix}{}", value.get_name()), value.get_help())))
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

    /// Those that begin as the last word does.
    fn matching_words<'b>(
        &self,
        all: impl Iterator<Item = (String, Option<&'b StyledStr>)>,
    ) -> CompletionOffer {
        let fitting = all.filter(|(word, _)| word.starts_with(self.last));
        CompletionOffer::Words(fitting.map(|(word, help)| candidate_line(&word, help)).collect())
    }

    /// The way to the cluster, as the flags on the line say it.
    pub(super) fn cluster_options(&self) -> ClusterOptions {
        let value = |name: &str| {
            let mut given = self.given.iter().filter(|(flag, _)| flag.get_id() == name);
            given.next_back().map(|&(_, value)| value.to_owned())
        };
        ClusterOptions {
            kubeconfig: value("kubeconfig").map(PathBuf::from),
            context: value("context"),
            namespace: value("namespace"),
        }
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
    use program::command_line;

    use super::super::super::args::PluginCli;
    use super::*;

    fn read<T>(words: &[&str], look: impl FnOnce(&CompletionLine<'_>) -> T) -> T {
        let mut command = command_line::build_command::<PluginCli>();
        command.build();
        let words: Vec<_> = words.iter().map(|word| Cow::Borrowed(*word)).collect();
        look(&CompletionLine::parse_words(&command, &words))
    }

    fn offer(words: &[&str]) -> CompletionOffer {
        read(words, |line| line.last_word_offer())
    }

    /// The candidates, without what they mean.
    fn candidates(words: &[&str]) -> Vec<String> {
        let CompletionOffer::Words(lines) = offer(words) else {
            panic!("no words: {words:?}");
        };
        let word = |line: &String| line.trim_end().split('\t').next().map(str::to_owned);
        lines.iter().filter_map(word).collect()
    }

    #[test]
    fn targets_are_completed_where_a_command_has_one() {
        for words in [
            &["status", ""][..],
            &["token", "dv/"],
            &["token", "-n", "vms", "dv/"],
            &["upload", "a.raw", ""],
            &["upload", "--insecure", "a.raw", "--size", "1Gi", "pv"],
            &["upload", "--size=1Gi", "-qvn", "vms", "a.raw", ""],
            &["upload", "--", "-a.raw", ""],
            &["import", "https://example.org/a", "--secret", "s", ""],
        ] {
            assert_eq!(offer(words), CompletionOffer::Targets, "{words:?}");
        }
        for words in [&["upload", ""][..], &["upload", "./a"], &["status", "--kubeconfig", ""]] {
            assert_eq!(offer(words), CompletionOffer::Files, "{words:?}");
        }
        for words in [
            &["upload", "a.raw", "dv/a", ""][..],
            &["status", "--namespace", ""],
            &["import", ""],
            &["status", "--nothing="],
        ] {
            assert_eq!(offer(words), CompletionOffer::Words(Vec::new()), "{words:?}");
        }
    }

    #[test]
    fn commands_flags_and_values_are_completed_by_what_they_begin_with() {
        assert_eq!(candidates(&[""]), ["upload", "import", "status", "token", "completions", "man", "help"]);
        assert_eq!(candidates(&["im"]), ["import"]);
        assert_eq!(candidates(&["help", "st"]), ["status"]);
        assert_eq!(candidates(&["completions", "b"]), ["bash"]);
        assert_eq!(candidates(&["upload", "--dr"]), ["--dry-run"],);
        assert_eq!(candidates(&["upload", "--dry-run", ""]), ["client"]);
        assert_eq!(candidates(&["upload", "--dry-run="]), ["--dry-run=client"]);
        assert_eq!(candidates(&["upload", "--insecure", "--ins"]), ["--instancetype"]);
        assert!(candidates(&["upload", "-"]).contains(&"--help".to_owned()));
        let CompletionOffer::Words(lines) = offer(&["sta"]) else {
            panic!("no words");
        };
        assert_eq!(lines, ["status\tShow how far DataVolumes are, and what is in their way\n"]);
    }

    #[test]
    fn the_cluster_is_that_of_the_line() {
        let words = ["token", "--context=lab", "-nvms", "--kubeconfig", "/k", ""];
        read(&words, |line| {
            let reach = line.cluster_options();
            assert_eq!(reach.context.as_deref(), Some("lab"));
            assert_eq!(reach.namespace.as_deref(), Some("vms"));
            assert_eq!(reach.kubeconfig, Some(PathBuf::from("/k")));
        });
        read(&[], |line| assert_eq!((line.last, line.cluster_options().namespace), ("", None)));
    }
}
