//! The part of the command line that all programs share, built on clap: the layout of help, the
//! subcommands that every program has, the verbosity options, and the reporting of failed
//! commands.

mod completion;
mod tls;
pub mod values;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::color;
use crate::env::ProcessEnv;
use crate::logging::{self, LogFormat, LogOptions, LogStyle};
use crate::panics;
use clap::builder::StyledStr;
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
pub use completion::{COMPLETE, CompletionLine, names_subcommand};
pub use tls::TlsArgs;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::exit::{self, ExitReason};
use crate::signal::{ShutdownRequest, StopSignal};
use crate::start::ProcessStartError;
pub use crate::stdout::print_stdout;

/// The colours of help texts.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

// The subcommands of every program. This is not a doc comment, because clap would use it as the
// description of the program that these commands are added to.
#[derive(Debug, Subcommand)]
enum CommonCommand {
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page (roff)
    Man {
        /// The command that it describes [default: the program]
        command: Option<String>,
    },
}

/// The error of a failed command. Its `Display` is the message for the user.
pub trait FailedCommand: Display {
    /// The exit code for this error.
    fn exit_reason(&self) -> ExitReason;
}

/// The reason why a command failed, for programs that do not handle any of the reasons.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct CommandError {
    reason: ExitReason,
    sentence: String,
}

impl CommandError {
    /// Creates an error that ends the process for `reason` after printing `sentence`.
    pub fn new(reason: ExitReason, sentence: impl Display) -> Self {
        Self { reason, sentence: sentence.to_string() }
    }

    /// Creates the error for a command that ended because of a signal.
    pub fn from_shutdown(shutdown: &ShutdownRequest) -> Self {
        Self::from_signal(shutdown.first_signal().unwrap_or(StopSignal::Terminate))
    }

    /// Creates the error for a command that ended because of `signal`.
    pub fn from_signal(signal: StopSignal) -> Self {
        Self::new(ExitReason::Signalled(signal), format_args!("stopped by {}", signal.name()))
    }
}

impl From<ProcessStartError> for CommandError {
    fn from(error: ProcessStartError) -> Self {
        Self::new(ExitReason::Internal, error)
    }
}

impl FailedCommand for CommandError {
    fn exit_reason(&self) -> ExitReason {
        self.reason
    }
}

/// The error type of a program that only has the shared subcommands.
impl FailedCommand for Infallible {
    fn exit_reason(&self) -> ExitReason {
        match *self {}
    }
}

/// Parses `arguments` (without the program name) and runs the command: a command of `P` with
/// `run`, or one of the commands that every program has. `list_values` lists the values that
/// complete arguments with the hint `ValueHint::Other`.
pub fn main<P, E>(
    program: &'static str,
    arguments: &[OsString],
    list_values: impl FnOnce(&CompletionLine<'_>) -> Vec<String>,
    run: impl FnOnce(P) -> Result<(), E>,
) -> ExitCode
where
    P: Parser,
    E: FailedCommand,
{
    panics::install_hook();
    let work = || match arguments.split_first() {
        Some((first, line)) if first == COMPLETE => {
            completion::print_completions::<P>(line, list_values)
        }
        _ => parse_and_run(program, arguments, run),
    };
    panics::catch_panic(work).unwrap_or_else(|panicked| {
        print_error(program, panicked);
        ExitReason::Internal.into()
    })
}

fn parse_and_run<P, E>(
    program: &'static str,
    arguments: &[OsString],
    run: impl FnOnce(P) -> Result<(), E>,
) -> ExitCode
where
    P: Parser,
    E: FailedCommand,
{
    let mut command = build_command::<P>();
    let line = [OsString::from(program)].into_iter().chain(arguments.iter().cloned());
    let parsed = command.try_get_matches_from_mut(line).and_then(|matches| {
        match CommonCommand::from_arg_matches(&matches) {
            Ok(common) => Ok(Err(common)),
            Err(_) => P::from_arg_matches(&matches).map(Ok),
        }
    });
    let exit = match parsed {
        Ok(Ok(own)) => run(own).map_err(|failed| {
            match failed.exit_reason() {
                // Ctrl-C is not an error to the person who pressed it, so the line gets no error
                // label.
                ExitReason::Signalled(_) => print_line(program, &failed),
                _ => print_error(program, &failed),
            }
            failed.exit_reason()
        }),
        Ok(Err(common)) => match common.output_text::<P>(program) {
            Ok(text) => print_stdout(&text).map_err(|error| {
                print_error(program, format_args!("cannot write to stdout: {error}"));
                ExitReason::Internal
            }),
            Err(sentence) => {
                print_error(program, sentence);
                Err(ExitReason::Usage)
            }
        },
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument
                && is_before_subcommand::<P>(&error, arguments)
            {
                let tip = StyledStr::from("options of a subcommand follow its name");
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
            // Help that was requested goes to stdout and is a success; everything else goes to
            // stderr.
            let error = error.format(&mut command);
            error.print().ok();
            Err(if error.use_stderr() { ExitReason::Usage } else { ExitReason::Done })
        }
    };
    exit.err().unwrap_or(ExitReason::Done).into()
}

/// True if the unknown argument in `error` comes first and is followed by a subcommand.
fn is_before_subcommand<P: CommandFactory>(error: &clap::Error, arguments: &[OsString]) -> bool {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return false;
    };
    let first = arguments.first().and_then(|first| first.to_str());
    first.is_some_and(|first| first.starts_with(unknown)) && names_subcommand::<P>(arguments)
}

/// Width in columns of the narrowest terminal for which help is laid out.
const HELP_COLUMNS: usize = 80;

/// The command line `P`, extended by the commands and options of all programs.
fn build_command<P: CommandFactory>() -> Command {
    let with_codes = |command: Command| {
        let help = match command.get_after_help() {
            Some(examples) => format!("{examples}\n\n{}", exit::HELP),
            None => exit::HELP.to_owned(),
        };
        // A narrower terminal would wrap the line. The end of an example would then be lost when
        // it is pasted.
        debug_assert!(
            help.lines().all(|line| line.chars().count() < HELP_COLUMNS),
            "too wide:\n{help}"
        );
        command.after_help(help)
    };
    let own = with_codes(P::command().mut_subcommands(with_codes));
    // The shared commands only print text and ignore the program's global options. These are
    // hidden there, because clap would otherwise list them.
    let global: Vec<_> =
        own.get_arguments().filter(|option| option.is_global_set()).cloned().collect();
    let hidden = || global.iter().map(|option| option.clone().global(false).hide(true));
    CommonCommand::augment_subcommands(own)
        .mut_subcommand("completions", |command| command.args(hidden()))
        .mut_subcommand("man", |command| command.args(hidden()))
        .version(crate::VERSION.as_str())
        .styles(STYLES)
        .max_term_width(100)
        .arg_required_else_help(true)
}

impl CommonCommand {
    /// Returns the text that this command prints for `program`, whose command line is `P`, or a
    /// sentence about a mistake.
    fn output_text<P: CommandFactory>(&self, program: &str) -> Result<Vec<u8>, String> {
        // A new command is built here: one that has already parsed arguments lists no subcommands
        // below `help`.
        let mut command = build_command::<P>();
        let mut text = Vec::new();
        match self {
            Self::Completions { shell } => match completion::completion_script(program, *shell) {
                Some(script) => text.extend_from_slice(script.as_bytes()),
                None => {
                    clap_complete::generate(*shell, &mut command, program, &mut text);
                    text = completion::without_hidden(&command, &text);
                }
            },
            Self::Man { .. } if io::stdout().is_terminal() => {
                return Err(format!("this is a page for man: `{program} man | man -l -` shows it"));
            }
            Self::Man { command: None } => text = manual_page(command),
            Self::Man { command: Some(name) } => {
                command.build();
                let chosen = command.find_subcommand(name);
                text = manual_page(chosen.ok_or(format!("there is no command {name}"))?.clone());
            }
        }
        Ok(text)
    }
}

/// Returns the manual page of a command, in roff.
fn manual_page(command: Command) -> Vec<u8> {
    let mut page = Vec::new();
    // The result can be ignored, because writing to memory does not fail.
    clap_mangen::Man::new(command).render(&mut page).unwrap_or_default();
    // The generator knows no other section for the examples and exit codes behind the options.
    let page = String::from_utf8_lossy(&page)
        .replace(".SH EXTRA\nE", "E")
        .replace("Examples:\n", ".SH EXAMPLES\n")
        .replace("Exit codes:\n", ".SH \"EXIT STATUS\"\n");
    page.into_bytes()
}

/// The `-v` option, with the same verbosity levels in every program.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Increase verbosity: -v requests and retries (default of servers), -vv details and rates,
    /// -vvv everything
    #[arg(short, long = "verbose", action = clap::ArgAction::Count, help_heading = "Output")]
    verbose: u8,
}

/// The `-q` and `-v` options.
#[derive(Debug, Clone, Args)]
pub struct OutputArgs {
    /// Print only errors
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub(crate) quiet: bool,

    /// The verbosity.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The `-q` and `-v` options of a server, which logs what happens even without either.
#[derive(Debug, Clone, Args)]
pub struct ServerOutputArgs {
    /// The verbosity.
    #[command(flatten)]
    output: OutputArgs,

    /// Format of log lines [default: CDI_LOG_FORMAT, otherwise text]
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    log_format: Option<LogStyle>,
}

impl LogArgs {
    /// Starts logging to stderr for a command of `program`. Without `-v` only warnings and errors
    /// are logged, because a command prints its result itself.
    pub fn begin_logging(&self, program: &'static str) {
        self.begin_above(program, BoxMakeWriter::new(io::stderr));
    }

    /// Like [`LogArgs::begin_logging`], with a writer that moves a progress bar out of the way.
    pub(crate) fn begin_above(&self, program: &'static str, writer: BoxMakeWriter) {
        init_logging(program, LogStyle::Text, klog_verbosity(self.verbose), writer);
    }
}

impl ServerOutputArgs {
    /// Starts logging to stderr for a server. Unless `-q` is given, at least information messages
    /// are logged, because nothing else reports the result of an upload.
    pub fn begin_logging(&self, program: &'static str) {
        self.begin_above(program, BoxMakeWriter::new(io::stderr));
    }

    /// Like [`ServerOutputArgs::begin_logging`], with a writer that moves a progress bar out of
    /// the way.
    pub(crate) fn begin_above(&self, program: &'static str, writer: BoxMakeWriter) {
        let OutputArgs { quiet, log: LogArgs { verbose } } = self.output;
        let steps = if quiet { 0 } else { verbose.max(1) };
        init_logging(program, self.log_style(), klog_verbosity(steps), writer);
    }

    /// True if the output is meant for people: the format is text and `-q` is not given.
    #[cfg(feature = "progress")]
    pub(crate) fn is_for_people(&self) -> bool {
        !self.output.quiet && self.log_style() == LogStyle::Text
    }

    fn log_style(&self) -> LogStyle {
        self.log_format.unwrap_or_else(|| LogStyle::from_env(&ProcessEnv))
    }
}

/// Converts the number of `-v` options to klog's verbosity.
fn klog_verbosity(steps: u8) -> u8 {
    match steps {
        0 => 0,
        1 => 1,
        2 => 3,
        _ => 5,
    }
}

fn init_logging(program: &'static str, style: LogStyle, verbosity: u8, writer: BoxMakeWriter) {
    let text = if color::is_stderr_colored() { LogFormat::Colored } else { LogFormat::Plain };
    let options = LogOptions { format: style.log_format(text), verbosity, program };
    logging::init_with(options, writer);
    crate::install_provider();
}

/// Prints a summary after success. If it cannot be written to stdout, the error goes to stderr and
/// the exit code stays 0.
#[cfg(feature = "progress")]
pub(crate) fn print_summary(program: &str, summary: &str) {
    if let Err(error) = print_stdout(summary.as_bytes()) {
        // If stderr is closed too, the message is lost, but the exit code still reports success.
        print_error(program, format_args!("done, but stdout cannot be written: {error}"));
    }
}

/// Writes an error of `program` to stderr, with a label if stderr is a terminal that shows
/// colours. If stderr is closed, only the exit code reports the error.
pub fn print_error(program: &str, sentence: impl Display) {
    if color::is_stderr_colored() {
        write_sentence(&color::error_name(program), sentence);
    } else {
        print_line(program, sentence);
    }
}

/// Writes a message of `program` to stderr, without colours.
pub fn print_line(program: &str, sentence: impl Display) {
    write_sentence(&format!("{program}: "), sentence);
}

fn write_sentence(label: &str, sentence: impl Display) {
    let sentence = sentence.to_string();
    // The line is written with a single call, because other threads write log lines at the same
    // time.
    let line = format!("{label}{}\n", printable::escape_text(&sentence));
    io::stderr().write_all(line.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_v_raises_the_verbosity_up_to_three() {
        assert_eq!([0, 1, 2, 3, 9].map(klog_verbosity), [0, 1, 3, 5, 5]);
    }

    #[derive(Parser)]
    struct Cli {
        #[arg(long, global = true)]
        _memory: Option<String>,
        #[command(subcommand)]
        _command: Own,
    }

    #[derive(Subcommand)]
    enum Own {
        Do,
    }

    #[test]
    fn an_option_before_a_subcommand_does_not_hide_it() {
        for (line, is_named) in [
            ("do", true),
            ("--memory 100Mi do", true),
            ("--memory=100Mi help", true),
            ("-v do x", true),
            ("--memory do", false),
            ("--memory=do", false),
            ("-v=1 done", false),
            ("-- do", false),
        ] {
            let line: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(names_subcommand::<Cli>(&line), is_named, "{line:?}");
        }
    }

    #[test]
    fn every_shell_has_a_script_for_the_program() {
        for shell in Shell::value_variants() {
            let script =
                CommonCommand::Completions { shell: *shell }.output_text::<Cli>("some-program");
            let script = String::from_utf8(script.unwrap()).unwrap();
            let is_filled_in = !script.contains("@PROGRAM@") && !script.contains("@FUNCTION@");
            assert!(script.contains("some-program") && is_filled_in, "{shell}: {script}");
        }
    }
}
