//! Chooses between the two modes of a program, command line and pod, depending on how it was
//! started.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::env::{NamedStrings, ProcessEnv};
use crate::flags::takes_next_word;

/// The `main` of a program, which runs it as a command line or as a pod. `variable` is an
/// environment variable that is always set in the pod. `names_subcommand` returns true if the
/// arguments contain a subcommand of the command line.
pub fn run_program(
    variable: &str,
    names_subcommand: impl FnOnce(&[OsString]) -> bool,
    command_line: impl FnOnce(&[OsString]) -> ExitCode,
    pod: impl FnOnce(&[OsString], &dyn NamedStrings) -> ExitCode,
) -> ExitCode {
    let arguments = program_arguments();
    if is_pod(&arguments, &ProcessEnv, variable, names_subcommand) {
        pod(&arguments, &ProcessEnv)
    } else {
        command_line(&arguments)
    }
}

/// Returns the name under which this process was started, or an empty string if it was started
/// without a name.
pub fn program_name() -> OsString {
    std::env::args_os().next().unwrap_or_default()
}

/// Returns the arguments of this process, without the program's name.
pub fn program_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// True if CDI's controller started the program. Pods pass only klog flags (`-alsologtostderr
/// -v=1`) or no arguments at all, and `variable` is always part of their environment. Any other
/// first word, or a flag followed by a subcommand, was typed by a person or a script.
fn is_pod(
    arguments: &[OsString],
    env: &dyn NamedStrings,
    variable: &str,
    names_subcommand: impl FnOnce(&[OsString]) -> bool,
) -> bool {
    let Some(first) = arguments.first() else {
        return env.get(variable).is_some();
    };
    let flag = first.to_str().filter(|first| first.starts_with('-'));
    flag.is_some_and(|flag| !matches!(flag, "-h" | "--help" | "-V" | "--version"))
        && !names_subcommand(&without_klog_values(arguments))
}

/// Removes the values that follow klog's flags, because a value may look like a subcommand
/// (`-log_dir import`).
fn without_klog_values(arguments: &[OsString]) -> Vec<OsString> {
    let mut is_value = false;
    let mut is_word = |argument: &&OsString| {
        let is_skipped = is_value;
        is_value = !is_skipped && argument.to_str().is_some_and(takes_next_word);
        !is_skipped
    };
    arguments.iter().filter(|argument| is_word(argument)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn klog_flags_or_only_an_environment_select_pod_mode() {
        let names_import = |arguments: &[OsString]| arguments.iter().any(|word| word == "import");
        for (line, source, is_pod) in [
            ("-alsologtostderr -v=1", Some("http"), true),
            ("--v=3", None, true),
            ("", Some("http"), true),
            ("-log_dir import -v 3", Some("http"), true),
            ("", None, false),
            ("-v import a", Some("http"), false),
            ("--memory 1Gi import", Some("http"), false),
            ("-log_dir -v import", Some("http"), false),
            ("import", Some("http"), false),
            ("man", Some("http"), false),
            ("--help", Some("http"), false),
            ("-h", Some("http"), false),
            ("--version", Some("http"), false),
            ("-V", Some("http"), false),
            ("nonsense", Some("http"), false),
        ] {
            let arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let source = source.map(|value| ("IMPORTER_SOURCE".to_owned(), value.to_owned()));
            let env: HashMap<_, _> = source.into_iter().collect();
            let found = super::is_pod(&arguments, &env, "IMPORTER_SOURCE", names_import);
            assert_eq!(found, is_pod, "{line} {env:?}");
        }
    }
}
