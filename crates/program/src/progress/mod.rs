//! A running job on a terminal: a bar, a line a second, or a JSON object a second, and log lines that do not tear the bar.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::command_line::{LogArgs, OutputArgs, print_error, print_summary};

/// The time from one line of progress to the next.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// The time from one drawing of the bar to the next.
const BAR_PERIOD: Duration = Duration::from_millis(100);

/// The bar of a job that knows how much there is.
const BAR: &str =
    "{bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";

/// The bar while something is waited for, when a rate means nothing.
const WAITING: &str = "{bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}{msg}";

/// The stand-in for the bar until that is known.
const SPINNER: &str = "{spinner} {binary_bytes} read  {binary_bytes_per_sec}{msg}";

/// `--progress`, `-q` and `-v`.
#[derive(Debug, Clone, Args)]
pub struct ProgressArgs {
    /// Display of progress
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto, help_heading = "Output")]
    pub progress: ProgressMode,

    /// Verbosity.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, else plain
    Auto,
    /// A bar on stderr
    Bar,
    /// One line a second on stderr, if it differs from the one before
    Plain,
    /// One JSON object a second on stdout
    Json,
    /// Nothing
    None,
}

/// A running job, in numbers and in words.
pub trait WatchedJob: Send + 'static {
    /// Bytes that are done.
    fn done_bytes(&self) -> u64;

    /// Bytes that there are, if that is known.
    fn total_bytes(&self) -> Option<u64>;

    /// What is being waited for, if anything is.
    fn wait_reason(&self) -> Option<String> {
        None
    }

    /// The line of `--progress plain`.
    fn plain_line(&mut self) -> String;

    /// Prints the objects of `--progress json` by [`emit_event`].
    fn emit_json(&mut self);
}

/// The display of a job.
#[derive(Debug, Clone)]
pub struct ProgressDisplay {
    program: &'static str,
    kind: DisplayKind,
    quiet: bool,
}

#[derive(Debug, Clone)]
enum DisplayKind {
    Bar(ProgressBar),
    Plain,
    Json,
    Nothing,
}

impl ProgressDisplay {
    /// The display that the arguments of `program` ask for, below which its log begins. `auto` looks at stderr.
    pub fn from_args(program: &'static str, progress: ProgressMode, output: &OutputArgs) -> Self {
        let kind = match progress {
            _ if output.quiet => DisplayKind::Nothing,
            ProgressMode::None => DisplayKind::Nothing,
            ProgressMode::Json => DisplayKind::Json,
            ProgressMode::Plain => DisplayKind::Plain,
            ProgressMode::Auto if !io::stderr().is_terminal() => DisplayKind::Plain,
            ProgressMode::Auto | ProgressMode::Bar => {
                DisplayKind::Bar(ProgressBar::new_spinner().with_style(bar_style(SPINNER)))
            }
        };
        let bar = match &kind {
            DisplayKind::Bar(bar) => Some(bar.clone()),
            DisplayKind::Plain | DisplayKind::Json | DisplayKind::Nothing => None,
        };
        let log: &LogArgs = &output.log;
        log.begin_above(program, move || LogWriter(bar.clone()));
        Self { program, kind, quiet: output.quiet }
    }

    /// Runs `job` while this shows what is known of it.
    pub fn run_watched<T>(&self, watched: impl WatchedJob, job: impl FnOnce() -> T) -> T {
        let reporter = ProgressReporter::start(self.clone(), watched);
        let value = job();
        reporter.finish();
        value
    }

    /// Says what became of a job: `summary` as a line, or `event` where a program reads along.
    pub fn show_summary(&self, summary: impl FnOnce() -> String, event: &impl Serialize) {
        match self.kind {
            DisplayKind::Json => print_summary(self.program, &json_line(event)),
            _ if self.quiet => {}
            DisplayKind::Bar(_) | DisplayKind::Plain | DisplayKind::Nothing => {
                print_summary(self.program, &(summary() + "\n"))
            }
        }
    }

    /// Tells a program that reads along of a failure; people are told by the sentence on stderr.
    pub fn conclude_failed(&self, event: &impl Serialize) {
        if matches!(self.kind, DisplayKind::Json) {
            emit_event(event);
        }
    }
}

/// Writes a line of `--progress json`. A reader that went away does not end the job.
pub fn emit_event(event: &impl Serialize) {
    io::stdout().write_all(json_line(event).as_bytes()).ok();
}

fn json_line(event: &impl Serialize) -> String {
    match serde_json::to_string(event) {
        Ok(line) => printable::escape_json(&line).into_owned() + "\n",
        Err(error) => {
            tracing::debug!(%error, "an event has no JSON form");
            String::new()
        }
    }
}

/// The thread that shows progress until [`ProgressReporter::finish`].
struct ProgressReporter {
    done: Sender<()>,
    /// `None` if the system gave no thread: a job is worth more than its display.
    thread: Option<JoinHandle<()>>,
}

impl ProgressReporter {
    fn start(display: ProgressDisplay, mut watched: impl WatchedJob) -> Self {
        let (done, finished) = mpsc::channel();
        let thread = Builder::new().spawn(move || {
            let period = match display.kind {
                DisplayKind::Bar(_) => BAR_PERIOD,
                DisplayKind::Plain | DisplayKind::Json | DisplayKind::Nothing => LINE_PERIOD,
            };
            let (mut shown, mut printed) = (SPINNER, String::new());
            while finished.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                match &display.kind {
                    DisplayKind::Bar(bar) => shown = draw_bar(bar, &watched, shown),
                    DisplayKind::Plain => {
                        let line = watched.plain_line();
                        if line != printed {
                            print_error(display.program, &line);
                            printed = line;
                        }
                    }
                    DisplayKind::Json => watched.emit_json(),
                    DisplayKind::Nothing => {}
                }
            }
            // A clean line for what follows.
            if let DisplayKind::Bar(bar) = &display.kind {
                bar.finish_and_clear();
            }
        });
        if let Err(error) = &thread {
            tracing::warn!("no progress is shown, for want of a thread: {error}");
        }
        Self { done, thread: thread.ok() }
    }

    fn finish(self) {
        drop(self.done);
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::debug!("the progress thread panicked");
        }
    }
}

/// Draws the bar, which was drawn as `shown`; returns what it is drawn as now.
fn draw_bar(bar: &ProgressBar, watched: &impl WatchedJob, shown: &'static str) -> &'static str {
    let (total, waiting) = (watched.total_bytes(), watched.wait_reason());
    let template = match (total, &waiting) {
        (None, _) => SPINNER,
        (Some(_), Some(_)) => WAITING,
        (Some(_), None) => BAR,
    };
    if template != shown {
        bar.set_style(bar_style(template));
        // A rate is that of the time in which something moved.
        bar.reset_eta();
    }
    if let Some(total) = total {
        bar.set_length(total);
    }
    bar.set_position(watched.done_bytes());
    let waiting = waiting.map(|what| format!("  {}", printable::escape_text(&what)));
    bar.set_message(waiting.unwrap_or_default());
    bar.tick();
    template
}

fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Writes log lines to stderr, above the bar if there is one.
struct LogWriter(Option<ProgressBar>);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn quiet_wins_over_any_display() {
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            shown: ProgressArgs,
        }
        for progress in ["auto", "bar", "plain", "json", "none"] {
            let Cli { shown } = Cli::try_parse_from(["job", "-q", "--progress", progress]).unwrap();
            let display = ProgressDisplay::from_args("job", shown.progress, &shown.output);
            assert!(display.quiet && matches!(display.kind, DisplayKind::Nothing), "{progress}");
        }
    }
}
