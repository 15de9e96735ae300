//! Words that stand out among the lines on a terminal.

/// The mark before a warning, without colours and with them.
pub(crate) const PLAIN_WARNING: &str = "warning: ";
pub(crate) const WARNING: &str = "\x1b[1;33mwarning:\x1b[0m ";

/// The mark before an error. Without colours there is none: scripts match the sentence behind the
/// name of the program.
#[cfg(feature = "commands")]
pub(crate) const ERROR: &str = "\x1b[1;31merror:\x1b[0m ";

/// True if stderr takes colours, by the same rules as clap's help: a terminal, `NO_COLOR`,
/// `CLICOLOR`, `CLICOLOR_FORCE`, `TERM`.
#[cfg(feature = "commands")]
pub(crate) fn is_stderr_colored() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}
