//! Labels that make warnings and errors stand out on a terminal.

/// The label before a warning, without and with colours.
pub(crate) const PLAIN_WARNING: &str = "warning: ";
pub(crate) const WARNING: &str = "\x1b[1;33mwarning:\x1b[0m ";

/// Colours the name of the program before an error. The words are the same without colours,
/// because scripts match the message directly after the name.
#[cfg(feature = "commands")]
pub(crate) fn error_name(program: &str) -> String {
    format!("\x1b[1;31m{program}:\x1b[0m ")
}

/// True if stderr accepts colours, by the same rules as clap's help: it is a terminal, and
/// `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE` and `TERM` allow it.
#[cfg(feature = "commands")]
pub(crate) fn is_stderr_colored() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}
