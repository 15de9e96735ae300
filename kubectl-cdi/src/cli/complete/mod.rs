//! What a shell completes. The shells' scripts and kubectl hand over the words of the line, the last of which is not finished; the
//! answer has a candidate a line, and a last line in cobra's notation, which says whether files are candidates too.

mod offer;

use std::ffi::OsString;
use std::process::ExitCode;

use program::command_line::{self, Shell};

use self::offer::{CompletionLine, CompletionOffer};
use super::args::PluginCli;
use super::run_quietly;
use crate::cluster::Cluster;

/// The name under which kubectl looks for a program that completes what follows `kubectl cdi`.
pub(super) const NAME_FOR_KUBECTL: &str = "kubectl_complete-cdi";

/// The command by which the scripts ask. It is none of clap's: words such as `--help` are only to be completed.
pub(super) const COMMAND: &str = "complete";

/// Cobra's directives.
const WITH_FILES: &str = ":0";
const WITHOUT_FILES: &str = ":4";

/// The script of a shell for which there is one that asks this program.
pub(super) fn completion_script(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some(include_str!("kubectl-cdi.bash")),
        Shell::Fish => Some(include_str!("kubectl-cdi.fish")),
        Shell::Zsh => Some(include_str!("kubectl-cdi.zsh")),
        _ => None,
    }
}

/// Prints the candidates for the last of `words`.
pub(super) fn print_completions(words: &[OsString]) -> ExitCode {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let mut command = command_line::build_command::<PluginCli>();
    command.build();
    let (mut text, mut end) = (String::new(), WITHOUT_FILES);
    let line = CompletionLine::parse_words(&command, &words);
    match line.last_word_offer() {
        CompletionOffer::Files => end = WITH_FILES,
        CompletionOffer::Words(candidates) => text = candidates.concat(),
        CompletionOffer::Targets => {
            // A shell shows nothing but candidates, so there is none where the cluster cannot be asked.
            let listing = run_quietly(async {
                let cluster = Cluster::connect(&line.cluster_options()).await?;
                Ok(cluster.list_targets().await)
            });
            let names = listing.unwrap_or_default().into_iter();
            let names = names.map(|name| name.to_string());
            for name in names.filter(|name| name.starts_with(line.last)) {
                text.push_str(&name);
                text.push('\n');
            }
        }
    }
    match command_line::print_stdout(format!("{text}{end}\n").as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
