//! The two faces of a program: the one that runs depends on who started it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::env::{NamedStrings, ProcessEnv};

/// The `main` of a program: runs the face that was asked for. A `variable` that is always a part of a pod's environment tells it.
pub fn run_program(
    variable: &str,
    command_line: impl FnOnce(&[OsString]) -> ExitCode,
    pod: impl FnOnce(&[OsString], &dyn NamedStrings) -> ExitCode,
) -> ExitCode {
    let arguments = program_arguments();
    match ProgramMode::from_arguments(&arguments, &ProcessEnv, variable) {
        ProgramMode::CommandLine => command_line(&arguments),
        ProgramMode::Pod => pod(&arguments, &ProcessEnv),
    }
}

/// The name under which this process was started; empty if it has none.
pub fn program_name() -> OsString {
    std::env::args_os().next().unwrap_or_default()
}

/// The arguments of this process, without its name.
pub fn program_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// A face of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramMode {
    /// A person or script: subcommands.
    CommandLine,
    /// CDI's controller: klog flags and environment variables.
    Pod,
}

impl ProgramMode {
    /// The face that `arguments` ask for. Pods pass only klog flags (`-alsologtostderr -v=1`), or nothing besides their environment,
    /// of which `variable` is always a part; whatever else comes first was typed.
    pub fn from_arguments(arguments: &[OsString], env: &dyn NamedStrings, variable: &str) -> Self {
        match arguments.first().and_then(|first| first.to_str()) {
            Some("-h" | "--help" | "-V" | "--version") => Self::CommandLine,
            Some(flag) if flag.starts_with('-') => Self::Pod,
            None if arguments.is_empty() && env.get(variable).is_some() => Self::Pod,
            Some(_) | None => Self::CommandLine,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn face(arguments: &[&str], source: Option<&str>) -> ProgramMode {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let env: HashMap<String, String> =
            source.map(|value| ("IMPORTER_SOURCE".to_owned(), value.to_owned())).into_iter().collect();
        ProgramMode::from_arguments(&arguments, &env, "IMPORTER_SOURCE")
    }

    #[test]
    fn klog_flags_or_a_bare_environment_are_a_pod() {
        assert_eq!(face(&["-alsologtostderr", "-v=1"], Some("http")), ProgramMode::Pod);
        assert_eq!(face(&["--v=3"], None), ProgramMode::Pod);
        assert_eq!(face(&[], Some("http")), ProgramMode::Pod);
    }

    #[test]
    fn subcommands_and_help_are_for_people_even_inside_a_pod() {
        for first in ["import", "info", "man", "--help", "-h", "--version", "-V", "nonsense"] {
            assert_eq!(face(&[first], Some("http")), ProgramMode::CommandLine, "{first}");
        }
        assert_eq!(face(&[], None), ProgramMode::CommandLine);
    }
}
