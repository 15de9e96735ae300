//! The commands: one module each, and the helpers that they share.

mod args;
mod download;
mod images;
mod import;
mod planner;
mod status;
mod token;
mod trial;
mod upload;
mod view;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use program::cgroup;
use program::command_line::{self, CompletionLine};
use program::exit::ExitReason;
use program::signal::{ShutdownRequest, StopSignal};
use program::start;
use stream::memory::{MemoryBudget, PROCESS_BYTES};

use self::args::{PluginCli, PluginCommand};
use crate::cluster::{Cluster, ClusterOptions};
use crate::error::PluginError;

/// Program name at the beginning of error messages.
const PROGRAM: &str = "kubectl-cdi";

/// Name of the program that kubectl runs to complete the arguments of `kubectl cdi`.
const NAME_FOR_KUBECTL: &str = "kubectl_complete-cdi";

/// Runs the command in `arguments`, which do not include the program name. `name` is the path by
/// which the program was called.
pub fn main(name: &OsStr, arguments: &[OsString]) -> ExitCode {
    // Disk images and API server responses share the memory that the cgroup allows.
    let allowed = cgroup::memory_bytes().unwrap_or(PROCESS_BYTES);
    MemoryBudget::limit_process(allowed.min(PROCESS_BYTES));
    let is_asked_by_kubectl = Path::new(name).file_stem() == Some(OsStr::new(NAME_FOR_KUBECTL));
    let prefix = is_asked_by_kubectl.then(|| OsString::from(command_line::COMPLETE));
    let arguments: Vec<OsString> = prefix.into_iter().chain(arguments.iter().cloned()).collect();
    command_line::main(PROGRAM, &arguments, list_targets, |cli: PluginCli| {
        let cluster = cli.cluster;
        match cli.command {
            PluginCommand::Upload(mut own) => {
                own.cluster = cluster;
                upload::run_upload(*own, &arguments)
            }
            PluginCommand::Download(mut own) => {
                own.cluster = cluster;
                download::run_download(&own)
            }
            PluginCommand::Import(mut own) => {
                own.cluster = cluster;
                import::run_import(*own)
            }
            PluginCommand::Status(mut own) => {
                own.cluster = cluster;
                run_quietly(status::print_status(own))
            }
            PluginCommand::Token(mut own) => {
                own.cluster = cluster;
                run_quietly(token::print_token(own))
            }
            PluginCommand::Images(mut own) => {
                own.cluster = cluster;
                images::run_images(own)
            }
        }
    })
}

/// Lists DataVolumes and claims to complete a target on `line`. If the cluster cannot be reached,
/// the list is empty: a shell shows only candidates, so an error would not be visible.
fn list_targets(line: &CompletionLine<'_>) -> Vec<String> {
    let options = ClusterOptions {
        kubeconfig: line.option_value("kubeconfig").map(PathBuf::from),
        context: line.option_value("context").map(str::to_owned),
        namespace: line.option_value("namespace").map(str::to_owned),
    };
    let listing = run_quietly(async { Ok(Cluster::connect(&options).await?.list_targets().await) });
    listing.unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// Runs `job` until it ends or a signal arrives. After a signal, `advice` tells the user what is
/// still running, or which command resumes the job.
fn under_signals<T>(
    job: impl Future<Output = Result<T, PluginError>>,
    advice: impl FnOnce() -> Option<String>,
) -> Result<T, PluginError> {
    start::on_runtime(async |shutdown| {
        tokio::select! {
            result = job => result,
            () = shutdown.cancel_token().cancelled() => Err(stopped_error(&shutdown, advice())),
        }
    })
}

/// Creates the error of a command that was stopped by a signal.
fn stopped_error(shutdown: &ShutdownRequest, advice: Option<String>) -> PluginError {
    let signal = shutdown.first_signal().unwrap_or(StopSignal::Terminate);
    let message = match advice {
        Some(advice) => format!("stopped by {}; {advice}", signal.name()),
        None => format!("stopped by {}", signal.name()),
    };
    PluginError::new(ExitReason::Signalled(signal), message)
}

/// Runs a job that creates nothing in the cluster and displays no progress.
fn run_quietly<T>(job: impl Future<Output = Result<T, PluginError>>) -> Result<T, PluginError> {
    program::install_provider();
    under_signals(job, || None)
}

fn print_text(text: &str) -> Result<(), PluginError> {
    command_line::print_stdout(text.as_bytes()).map_err(PluginError::stdout)
}

/// Quotes an argument for a shell, if it needs quotes. Used for commands that are printed.
fn shell_word(word: &str) -> String {
    let plain = if cfg!(windows) { r"-_./:=@,+\" } else { "-_./:=@,+%" };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || plain.contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else if cfg!(windows) {
        // Understood by cmd and PowerShell. No path contains a double quote.
        format!("\"{word}\"")
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the options that select the cluster, as text for a command that is printed for the user.
fn cluster_words(options: &ClusterOptions) -> String {
    let file = options.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
    let flags = [
        ("--kubeconfig", file.as_ref()),
        ("--context", options.context.as_ref()),
        ("--namespace", options.namespace.as_ref()),
    ];
    let given = flags.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    given.map(|(flag, value)| format!(" {flag} {}", shell_word(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_special_characters_is_quoted_for_the_shell() {
        for (word, expected) in
            [("a/b-c.raw", "a/b-c.raw"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(shell_word(word), expected);
        }
    }
}
