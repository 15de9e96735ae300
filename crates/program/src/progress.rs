//! A running job on a terminal: a bar, a line a second, or a JSON object a second, and log lines that do not tear the bar.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::command_line::{LogArgs, OutputArgs, complain, print_summary};

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
    #[arg(long, value_enum, default_value_t = Progress::Auto, help_heading = "Output")]
    pub progress: Progress,

    /// Verbosity.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Progress {
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
pub trait Watched: Send + 'static {
    /// Bytes that are done.
    fn position(&self) -> u64;

    /// Bytes that there are, if that is known.
    fn total(&self) -> Option<u64>;

    /// What is being waited for, if anything is.
    fn waiting(&self) -> Option<String> {
        None
    }

    /// The line of `--progress plain`.
    fn line(&mut self) -> String;

    /// Prints the objects of `--progress json` by [`emit`].
    fn emit(&mut self);
}

/// The display of a job.
#[derive(Debug, Clone)]
pub struct Display {
    program: &'static str,
    kind: Kind,
    quiet: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    Bar(ProgressBar),
    Plain,
    Json,
    Nothing,
}

impl Display {
    /// The display that the arguments of `program` ask for, below which its log begins. `auto` looks at stderr.
    pub fn begin(program: &'static str, progress: Progress, output: &OutputArgs) -> Self {
        let kind = match progress {
            _ if output.quiet => Kind::Nothing,
            Progress::None => Kind::Nothing,
            Progress::Json => Kind::Json,
            Progress::Plain => Kind::Plain,
            Progress::Auto if !io::stderr().is_terminal() => Kind::Plain,
            Progress::Auto | Progress::Bar => {
                Kind::Bar(ProgressBar::new_spinner().with_style(style(SPINNER)))
            }
        };
        let bar = match &kind {
            Kind::Bar(bar) => Some(bar.clone()),
            Kind::Plain | Kind::Json | Kind::Nothing => None,
        };
        let log: &LogArgs = &output.log;
        log.begin_above(program, move || LogWriter(bar.clone()));
        Self {
            program,
            kind,
            quiet: output.quiet,
        }
    }

    /// Runs `job` while this shows what is known of it.
    pub fn during<T>(&self, watched: impl Watched, job: impl FnOnce() -> T) -> T {
        let reporter = Reporter::start(self.clone(), watched);
        let value = job();
        reporter.finish();
        value
    }

    /// Says what became of a job: `summary` as a line, or `event` where a program reads along.
    pub fn conclude(&self, summary: impl FnOnce() -> String, event: &impl Serialize) {
        match self.kind {
            Kind::Json => print_summary(self.program, &json(event)),
            _ if self.quiet => {}
            Kind::Bar(_) | Kind::Plain | Kind::Nothing => print_summary(self.program, &(summary() + "\n")),
        }
    }

    /// Tells a program that reads along of a failure; people are told by the sentence on stderr.
    pub fn conclude_failed(&self, event: &impl Serialize) {
        if matches!(self.kind, Kind::Json) {
            emit(event);
        }
    }
}

/// Writes a line of `--progress json`. A reader that went away does not end the job.
pub fn emit(event: &impl Serialize) {
    io::stdout().write_all(json(event).as_bytes()).ok();
}

fn json(event: &impl Serialize) -> String {
    match serde_json::to_string(event) {
        Ok(line) => printable::json(&line).into_owned() + "\n",
        Err(error) => {
            tracing::debug!(%error, "an event has no JSON form");
            String::new()
        }
    }
}

/// The thread that shows progress until [`Reporter::finish`].
struct Reporter {
    done: Sender<()>,
    /// `None` if the system gave no thread: a job is worth more than its display.
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    fn start(display: Display, mut watched: impl Watched) -> Self {
        let (done, finished) = mpsc::channel();
        let thread = Builder::new().spawn(move || {
            let period = match display.kind {
                Kind::Bar(_) => BAR_PERIOD,
                Kind::Plain | Kind::Json | Kind::Nothing => LINE_PERIOD,
            };
            let (mut shown, mut printed) = (SPINNER, String::new());
            while finished.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                match &display.kind {
                    Kind::Bar(bar) => shown = draw(bar, &watched, shown),
                    Kind::Plain => {
                        let line = watched.line();
                        if line != printed {
                            complain(display.program, &line);
                            printed = line;
                        }
                    }
                    Kind::Json => watched.emit(),
                    Kind::Nothing => {}
                }
            }
            // A clean line for what follows.
            if let Kind::Bar(bar) = &display.kind {
                bar.finish_and_clear();
            }
        });
        if let Err(error) = &thread {
            tracing::warn!("no progress is shown, for want of a thread: {error}");
        }
        Self {
            done,
            thread: thread.ok(),
        }
    }

    fn finish(self) {
        drop(self.done);
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::debug!("the progress thread panicked");
        }
    }
}

/// Draws the bar, which was drawn as `shown`; returns what it is drawn as now.
fn draw(bar: &ProgressBar, watched: &impl Watched, shown: &'static str) -> &'static str {
    let (total, waiting) = (watched.total(), watched.waiting());
    let template = match (total, &waiting) {
        (None, _) => SPINNER,
        (Some(_), Some(_)) => WAITING,
        (Some(_), None) => BAR,
    };
    if template != shown {
        bar.set_style(style(template));
        // A rate is that of the time in which something moved.
        bar.reset_eta();
    }
    if let Some(total) = total {
        bar.set_length(total);
    }
    bar.set_position(watched.position());
    let waiting = waiting.map(|what| format!("  {}", printable::text(&what)));
    bar.set_message(waiting.unwrap_or_default());
    bar.tick();
    template
}

fn style(template: &str) -> ProgressStyle {
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
            let display = Display::begin("job", shown.progress, &shown.output);
            assert!(
                display.quiet && matches!(display.kind, Kind::Nothing),
                "{progress}"
            );
        }
    }
}
