//! The importer: sources, and the two faces that run a transfer from them.
//!
//! ```text
//!  Face ─► cli  arguments ────► source ─► datapath::transfer ─► summary, exit code
//!     └──► pod  environment ──► source ─► datapath::transfer ─► termination message, exit code
//! ```

#![forbid(unsafe_code)]

pub mod cli;
pub mod pod;
pub mod source;

use std::ffi::OsString;

use daemon::env::Strings;

/// The program's version, and what it is built as.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who started the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// A person or script: subcommands.
    CommandLine,
    /// CDI's controller: klog flags and environment variables.
    Pod,
}

impl Face {
    /// Pods pass only klog flags (`-alsologtostderr -v=1`), or nothing besides their environment; whatever
    /// else comes first was typed.
    pub fn choose(arguments: &[OsString], env: &dyn Strings) -> Self {
        match arguments.first().and_then(|first| first.to_str()) {
            Some("-h" | "--help" | "-V" | "--version") => Self::CommandLine,
            Some(flag) if flag.starts_with('-') => Self::Pod,
            None if arguments.is_empty() && env.get(pod::SOURCE_VARIABLE).is_some() => Self::Pod,
            Some(_) | None => Self::CommandLine,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn face(arguments: &[&str], source: Option<&str>) -> Face {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let env: HashMap<String, String> = source
            .map(|value| (pod::SOURCE_VARIABLE.to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        Face::choose(&arguments, &env)
    }

    #[test]
    fn klog_flags_or_a_bare_environment_are_a_pod() {
        assert_eq!(face(&["-alsologtostderr", "-v=1"], Some("http")), Face::Pod);
        assert_eq!(face(&["--v=3"], None), Face::Pod);
        assert_eq!(face(&[], Some("http")), Face::Pod);
    }

    #[test]
    fn subcommands_and_help_are_for_people_even_inside_a_pod() {
        for first in [
            "import",
            "unpack",
            "info",
            "man",
            "--help",
            "-h",
            "--version",
            "-V",
            "nonsense",
        ] {
            assert_eq!(face(&[first], Some("http")), Face::CommandLine, "{first}");
        }
        assert_eq!(face(&[], None), Face::CommandLine);
    }
}
