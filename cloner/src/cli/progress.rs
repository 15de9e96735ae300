//! Shows a running clone: a bar, or a line a second.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};

use indicatif::{BinaryBytes, ProgressBar};
use volume::terminal::{BAR, BAR_PERIOD, LINE_PERIOD, LogWriter, style};

use super::args::Progress;
use crate::outgoing::Tally;

/// How progress is shown.
pub(super) enum Display {
    Bar(ProgressBar),
    Plain,
    Nothing,
}

impl Display {
    /// What the flags ask for; `auto` looks at stderr.
    pub(super) fn choose(progress: Progress, quiet: bool) -> Self {
        match progress {
            _ if quiet => Self::Nothing,
            Progress::None => Self::Nothing,
            Progress::Plain => Self::Plain,
            Progress::Auto if !io::stderr().is_terminal() => Self::Plain,
            Progress::Auto | Progress::Bar => Self::Bar(ProgressBar::new(0).with_style(style(BAR))),
        }
    }

    /// A writer to stderr that does not tear the bar.
    pub(super) fn log_writer(&self) -> impl Fn() -> LogWriter + Send + Sync + 'static {
        let bar = match self {
            Self::Bar(bar) => Some(bar.clone()),
            Self::Plain | Self::Nothing => None,
        };
        move || LogWriter(bar.clone())
    }

    /// Shows how much of about `total` bytes is done, until somebody stops it.
    pub(super) async fn show(&self, tally: &Tally, total: u64) -> Infallible {
        let period = if matches!(self, Self::Bar(_)) {
            BAR_PERIOD
        } else {
            LINE_PERIOD
        };
        let mut ticks = tokio::time::interval(period);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let (volume, stream) = (tally.volume_bytes(), tally.stream_bytes());
            match self {
                Self::Bar(bar) => {
                    // An estimate may be too small.
                    bar.set_length(total.max(volume));
                    bar.set_position(volume);
                }
                Self::Plain => {
                    let line = line(volume, stream, total);
                    writeln!(io::stderr(), "{}: {line}", super::PROGRAM).ok();
                }
                Self::Nothing => {}
            }
        }
    }

    /// Leaves a clean line for what follows.
    pub(super) fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn line(volume: u64, stream: u64, total: u64) -> String {
    let percent = (u128::from(volume) * 100)
        .checked_div(total.into())
        .unwrap_or(0)
        .min(100);
    let (volume, stream) = (BinaryBytes(volume), BinaryBytes(stream));
    format!("{percent} %, {volume} read, {stream} sent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_may_be_wrong() {
        assert_eq!(line(3 << 20, 1 << 20, 0), "0 %, 3.00 MiB read, 1.00 MiB sent");
        assert_eq!(
            line(3 << 20, 1 << 20, 2 << 20),
            "100 %, 3.00 MiB read, 1.00 MiB sent"
        );
    }
}
