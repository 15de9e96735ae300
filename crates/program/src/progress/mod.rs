//! Shows the progress of a running job: as a bar on a terminal, as one line per second, or as one
//! JSON object per second. Log lines are written above the bar.

mod bar;
mod terminal;
mod text;
mod wait;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use serde::Serialize;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

pub use self::bar::bytes_per_second;
use self::bar::{SmoothedRate, bar_text};
use self::terminal::StatusLine;
pub use self::text::BinaryBytes;
pub use self::wait::{PlannedRetry, WaitEvent, WaitState};
use crate::command_line::{OutputArgs, ServerOutputArgs, print_line, print_summary};
use crate::logging;

/// Time between two lines of progress.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// Time between two drawings of the bar. After a terminal is resized, the bar adapts to the new
/// width within this time.
const BAR_PERIOD: Duration = Duration::from_millis(100);

/// Time between two lines about the same wait.
const WAIT_LINE_PERIOD: Duration = Duration::from_secs(10);

/// Time between two log lines with rates.
const RATE_LOG_PERIOD: Duration = Duration::from_secs(5);

/// Time without a new byte after which a wait is shown. A wait is not shown at once, because one
/// connection may wait while others receive bytes.
const STILL_PERIOD: Duration = Duration::from_millis(500);

/// Maximum number of warnings kept for the last event. A longer list would not be useful.
const MAX_WARNINGS: usize = 50;

/// The `--progress`, `-q` and `-v` options.
#[derive(Debug, Clone, Args)]
pub struct ProgressArgs {
    /// Show progress in this form
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto, help_heading = "Output")]
    pub progress: ProgressMode,

    /// The verbosity.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Values of `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, otherwise plain
    Auto,
    /// A bar on stderr; plain where a terminal cannot draw one
    Bar,
    /// One line per second on stderr, if it has changed
    Plain,
    /// One JSON object per second on stdout
    Json,
    /// No progress
    None,
}

/// A running job whose progress can be shown.
pub trait WatchedJob: Send + 'static {
    /// Returns the number of bytes that are done.
    fn done_bytes(&self) -> u64;

    /// Returns the total number of bytes, if it is known.
    fn total_bytes(&self) -> Option<u64>;

    /// Returns the current wait of the job, if it is waiting.
    fn wait_state(&self) -> Option<WaitState> {
        None
    }

    /// Returns the line of `--progress plain` while the job is not waiting.
    fn plain_line(&self, moment: &JobMoment) -> String;

    /// Prints the objects of `--progress json` with [`emit_event`].
    fn emit_json(&mut self, moment: &JobMoment);

    /// Logs the rate of each part during the last `period`, which helps to find the slowest one.
    fn log_rates(&mut self, _period: Duration) {}
}

/// Progress of a job at one moment, as calculated by the display.
#[derive(Debug)]
pub struct JobMoment {
    /// The time at which the job was observed.
    pub now: Instant,
    /// The smoothed rate, once it is known.
    pub bytes_per_second: Option<u64>,
    /// The time in seconds until all bytes are done at this rate.
    pub seconds_left: Option<u64>,
    /// The current wait, during which no bytes are done.
    pub wait: Option<WaitState>,
    /// The number of observations so far, including the current one.
    drawings: usize,
}

/// Shows the progress and the result of a job.
#[derive(Debug, Clone)]
pub struct ProgressDisplay {
    program: &'static str,
    kind: DisplayKind,
    /// The bar. Nothing is drawn on it in another kind of display.
    line: StatusLine,
    warnings: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug, Clone, Copy)]
enum DisplayKind {
    Bar,
    Plain,
    Json,
    /// Only the summary.
    Nothing,
    /// Not even the summary.
    Quiet,
}

impl ProgressDisplay {
    /// Creates the display that is selected by the arguments of `program`, and starts logging
    /// above it. `auto` shows a bar if stderr is a terminal that can draw one.
    pub fn from_args(program: &'static str, progress: ProgressMode, output: &OutputArgs) -> Self {
        let kind = match progress {
            _ if output.quiet => DisplayKind::Quiet,
            ProgressMode::None => DisplayKind::Nothing,
            ProgressMode::Json => DisplayKind::Json,
            ProgressMode::Plain => DisplayKind::Plain,
            ProgressMode::Auto | ProgressMode::Bar if terminal::can_draw() => DisplayKind::Bar,
            ProgressMode::Auto | ProgressMode::Bar => DisplayKind::Plain,
        };
        let display = Self::new(program, kind);
        output.log.begin_above(program, BoxMakeWriter::new(DisplayLog(display.clone())));
        display
    }

    /// Creates a bar for a server's uploads, if its terminal can draw one, and starts the server's
    /// log above it. The result of an upload is reported in the log.
    pub fn for_server(program: &'static str, output: &ServerOutputArgs) -> Option<Self> {
        if !output.is_for_people() || !terminal::can_draw() {
            output.begin_logging(program);
            return None;
        }
        let display = Self::new(program, DisplayKind::Bar);
        output.begin_above(program, BoxMakeWriter::new(DisplayLog(display.clone())));
        Some(display)
    }

    fn new(program: &'static str, kind: DisplayKind) -> Self {
        Self { program, kind, line: StatusLine::default(), warnings: Arc::default() }
    }

    /// Returns the messages of the warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Runs `job` and shows the progress of `watched` until it ends.
    pub fn run_watched<T>(&self, watched: impl WatchedJob, job: impl FnOnce() -> T) -> T {
        // A channel is used instead of a sleep, so that the display does not delay the end of the
        // job.
        let (done, finished) = mpsc::channel();
        let display = self.clone();
        let thread = Builder::new().spawn(move || display.show_until(&finished, watched));
        if let Err(error) = &thread {
            tracing::warn!("progress is not shown, because its thread cannot be started: {error}");
        }
        let value = job();
        drop(done);
        if thread.is_ok_and(|thread| thread.join().is_err()) {
            tracing::debug!("the progress thread panicked");
        }
        value
    }

    /// Shows the progress of `watched` until the sender of `finished` is dropped.
    fn show_until(&self, finished: &Receiver<()>, mut watched: impl WatchedJob) {
        let period = match self.kind {
            DisplayKind::Bar => BAR_PERIOD,
            _ => LINE_PERIOD,
        };
        let (mut monitor, mut lines) = (JobMonitor::start(&watched), PlainLines::default());
        while finished.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            let moment = monitor.look_at(&mut watched);
            match self.kind {
                DisplayKind::Bar => {
                    self.line.draw(&bar_text(&watched, &moment, terminal::terminal_columns()));
                }
                DisplayKind::Plain => {
                    if let Some(line) = lines.next_line(&watched, &moment) {
                        print_line(self.program, &line);
                    }
                }
                DisplayKind::Json => watched.emit_json(&moment),
                DisplayKind::Nothing | DisplayKind::Quiet => {}
            }
        }
        // Leaves an empty line for the output that follows.
        self.line.clear();
    }

    /// Prints the result of a job: `event` with `--progress json`, otherwise `summary` as a line.
    pub fn show_summary(&self, summary: impl FnOnce() -> String, event: &impl Serialize) {
        match self.kind {
            DisplayKind::Json => print_summary(self.program, &json_line(event)),
            DisplayKind::Quiet => {}
            DisplayKind::Bar | DisplayKind::Plain | DisplayKind::Nothing => {
                print_summary(self.program, &(summary() + "\n"))
            }
        }
    }

    /// Prints `event` for a failed job with `--progress json`. People read the error message on
    /// stderr instead.
    pub fn conclude_failed(&self, event: &impl Serialize) {
        if matches!(self.kind, DisplayKind::Json) {
            emit_event(event);
        }
    }
}

/// Writes a line of `--progress json`. If the reader is gone, the job continues.
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

/// Observes a job repeatedly and calculates its rate.
struct JobMonitor {
    rate: SmoothedRate,
    position: u64,
    /// The time of the last observed change of the position.
    moved: Instant,
    logged: Instant,
    drawings: usize,
}

impl JobMonitor {
    fn start(watched: &impl WatchedJob) -> Self {
        let (position, now) = (watched.done_bytes(), Instant::now());
        Self {
            rate: SmoothedRate::start(position, now),
            position,
            moved: now,
            logged: now,
            drawings: 0,
        }
    }

    fn look_at(&mut self, watched: &mut impl WatchedJob) -> JobMoment {
        let (now, done) = (Instant::now(), watched.done_bytes());
        if done != self.position {
            (self.position, self.moved) = (done, now);
        }
        let wait = watched.wait_state().filter(|_| now.duration_since(self.moved) >= STILL_PERIOD);
        if wait.is_some() {
            // The rate covers only time in which bytes were done, so it starts again after a wait.
            self.rate = SmoothedRate::start(done, now);
        }
        let rate = self.rate.update_rate(done, now);
        if now.duration_since(self.logged) >= RATE_LOG_PERIOD {
            watched.log_rates(now.duration_since(self.logged));
            self.logged = now;
        }
        self.drawings = self.drawings.wrapping_add(1);
        let left = watched.total_bytes().map(|total| total.saturating_sub(done));
        JobMoment {
            now,
            bytes_per_second: rate,
            seconds_left: left.zip(rate).and_then(|(left, rate)| left.checked_div(rate)),
            wait,
            drawings: self.drawings,
        }
    }
}

/// Prints the lines of `--progress plain` without repetitions.
#[derive(Default)]
struct PlainLines {
    printed: String,
    /// The wait that the last line reported, and the time at which it was printed.
    waiting: Option<(WaitState, Instant)>,
}

impl PlainLines {
    /// Returns the line to print now, if there is a new one. During a wait, the same line is
    /// repeated only every [`WAIT_LINE_PERIOD`].
    fn next_line(&mut self, watched: &impl WatchedJob, moment: &JobMoment) -> Option<String> {
        let Some(wait) = &moment.wait else {
            self.waiting = None;
            let line = watched.plain_line(moment);
            let is_new = line != self.printed;
            self.printed.clone_from(&line);
            return is_new.then_some(line);
        };
        let is_known = self.waiting.as_ref().is_some_and(|(last, at)| {
            last.is_same_wait(wait) && moment.now.duration_since(*at) < WAIT_LINE_PERIOD
        });
        if is_known {
            return None;
        }
        self.waiting = Some((wait.clone(), moment.now));
        Some(wait.to_line(moment.now, usize::MAX))
    }
}

/// Writes log lines to stderr, above the bar if there is one, and collects warnings.
struct DisplayLog(ProgressDisplay);

/// Writes one log line.
struct LogWriter<'a> {
    display: &'a ProgressDisplay,
    is_warning: bool,
}

impl<'a> MakeWriter<'a> for DisplayLog {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogWriter { display: &self.0, is_warning: false }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        LogWriter { display: &self.0, is_warning: *metadata.level() == Level::WARN }
    }
}

impl Write for LogWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_warning {
            let mut warnings = self.display.warnings.lock();
            if warnings.len() < MAX_WARNINGS {
                warnings
                    .push(logging::warning_sentence(&String::from_utf8_lossy(bytes)).to_owned());
            }
        }
        self.display.line.write_above(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// A job with the number of its done bytes and its total.
    pub(super) struct Job(pub(super) u64, pub(super) Option<u64>);

    impl WatchedJob for Job {
        fn done_bytes(&self) -> u64 {
            self.0
        }

        fn total_bytes(&self) -> Option<u64> {
            self.1
        }

        fn wait_state(&self) -> Option<WaitState> {
            let cause = "no answer".to_owned();
            Some(WaitState { party: None, cause, since: Instant::now(), retry: None })
        }

        fn plain_line(&self, _: &JobMoment) -> String {
            format!("{} bytes", self.0)
        }

        fn emit_json(&mut self, _: &JobMoment) {}
    }

    pub(super) fn moment() -> JobMoment {
        JobMoment {
            now: Instant::now(),
            drawings: 1,
            bytes_per_second: Some(22 << 20),
            seconds_left: Some(3),
            wait: None,
        }
    }

    #[test]
    fn a_wait_is_reported_when_it_begins_changes_or_lasts() {
        let (job, since) = (Job(7, None), Instant::now());
        let mut lines = PlainLines::default();
        let mut next_line = |attempt: Option<u32>, seconds| {
            let now = since + Duration::from_secs(seconds);
            let wait = attempt.map(|attempt| {
                let retry = Some(PlannedRetry { attempt, at: now });
                WaitState { party: None, cause: "no answer".to_owned(), since, retry }
            });
            lines.next_line(&job, &JobMoment { now, wait, ..moment() })
        };
        assert_eq!(next_line(None, 0).as_deref(), Some("7 bytes"));
        assert_eq!(next_line(None, 1), None);
        assert_eq!(next_line(Some(2), 2).as_deref(), Some("retrying now (no answer, attempt 2)"));
        assert_eq!(next_line(Some(2), 3), None, "the same wait");
        assert_eq!(next_line(Some(3), 4).as_deref(), Some("retrying now (no answer, attempt 3)"));
        assert_eq!(next_line(Some(3), 13), None);
        assert_eq!(next_line(Some(3), 14).as_deref(), Some("retrying now (no answer, attempt 3)"));
        assert_eq!(next_line(None, 15), None, "nothing has moved");
    }

    #[test]
    fn a_wait_is_shown_once_nothing_moves() {
        let mut job = Job(7, None);
        let mut monitor = JobMonitor::start(&job);
        assert!(monitor.look_at(&mut job).wait.is_none(), "another connection may bring bytes");
        monitor.moved = Instant::now().checked_sub(STILL_PERIOD).unwrap();
        assert!(monitor.look_at(&mut job).wait.is_some());
        job.0 = 8;
        assert!(monitor.look_at(&mut job).wait.is_none());
    }

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
            assert!(matches!(display.kind, DisplayKind::Quiet), "{progress}");
        }
    }
}
