//! Completes command lines for shells.
//!
//! The completion scripts for bash, fish and zsh (and kubectl, for its plugin) run the program
//! with the words of the command line; the last word is unfinished. The program prints one
//! candidate per line. The last line is one of cobra's directives, which states whether file names
//! are candidates too.
//!
//! Our scripts ask the program for candidates. The scripts of `clap_complete` are not used, for
//! three reasons: if the program's name contains a hyphen, the bash script completes nothing after
//! a subcommand; hidden subcommands are not hidden; and the scripts cannot offer values that only
//! the program can list.

mod offer;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

pub use self::offer::CompletionLine;
use self::offer::CompletionOffer;

/// The first argument of a request for candidates. clap does not see such a request, because it
/// would handle a `--help` among the words itself.
pub const COMPLETE: &str = "complete";

/// Directives of cobra, which tell the shell whether to add file names.
const WITH_FILES: &str = ":0";
const WITHOUT_FILES: &str = ":4";
const WITH_FOLDERS: &str = ":16";

/// Returns the completion script of `program` for `shell`, or `None` for shells that use the
/// script of `clap_complete`.
pub(super) fn completion_script(program: &str, shell: Shell) -> Option<String> {
    let template = match shell {
        Shell::Bash => include_str!("completion.bash"),
        Shell::Fish => include_str!("completion.fish"),
        Shell::Zsh => include_str!("completion.zsh"),
        _ => return None,
    };
    Some(template.replace("@PROGRAM@", program).replace("@FUNCTION@", &program.replace('-', "_")))
}

/// Removes the lines for hidden subcommands from a completion script, because help does not list
/// these subcommands either.
pub(super) fn without_hidden(command: &Command, script: &[u8]) -> Vec<u8> {
    let hidden = command.get_subcommands().filter(|command| command.is_hide_set());
    let offers: Vec<_> = hidden
        .flat_map(|command| {
            let name = command.get_name();
            // The two forms in which elvish and PowerShell scripts list a candidate.
            [format!("cand {name} "), format!("CompletionResult]::new('{name}'")]
        })
        .collect();
    let script = String::from_utf8_lossy(script);
    let lines = script.split_inclusive('\n');
    lines
        .filter(|line| !offers.iter().any(|offer| line.contains(offer)))
        .collect::<String>()
        .into_bytes()
}

/// Prints the candidates for the last of the `arguments` of `P`. `list_values` provides the values
/// of arguments with the hint `ValueHint::Other`.
pub(super) fn print_completions<P: CommandFactory>(
    arguments: &[OsString],
    list_values: impl FnOnce(&CompletionLine<'_>) -> Vec<String>,
) -> ExitCode {
    let arguments: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let mut command = super::build_command::<P>();
    command.build();
    let line = CompletionLine::parse_arguments(&command, &arguments);
    let (candidates, directive) = match line.last_word_offer() {
        CompletionOffer::Files => (Vec::new(), WITH_FILES),
        CompletionOffer::Folders => (Vec::new(), WITH_FOLDERS),
        CompletionOffer::Words(candidates) => (candidates, WITHOUT_FILES),
        CompletionOffer::ListedValues => (line.matching_values(list_values(&line)), WITHOUT_FILES),
    };
    match super::print_stdout(format!("{}{directive}\n", candidates.concat()).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// True if one of `arguments` is at a position where clap interprets it as a subcommand of `P`.
pub fn names_subcommand<P: CommandFactory>(arguments: &[OsString]) -> bool {
    let mut command = super::build_command::<P>();
    command.build();
    // The parser treats the last word as unfinished, so an empty word is appended.
    let arguments: Vec<_> =
        arguments.iter().map(|word| word.to_string_lossy()).chain(["".into()]).collect();
    CompletionLine::parse_arguments(&command, &arguments).is_below(&command)
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand};

    use super::super::CommonCommand;
    use super::*;

    #[test]
    fn hidden_subcommands_are_not_offered() {
        #[derive(Parser)]
        struct Cli {
            #[command(subcommand)]
            _command: Hiding,
        }
        #[derive(Subcommand)]
        enum Hiding {
            Do,
            #[command(hide = true)]
            Secretly,
        }
        for shell in [Shell::Elvish, Shell::PowerShell] {
            let script = CommonCommand::Completions { shell }.output_text::<Cli>("some-program");
            let script = String::from_utf8(script.unwrap()).unwrap();
            let offers = |name| {
                script.contains(&format!("cand {name} "))
                    || script.contains(&format!("::new('{name}'"))
            };
            assert!(offers("do") && !offers("secretly"), "{shell}: {script}");
        }
    }
}
