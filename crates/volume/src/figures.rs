//! The stages of transfers in numbers, the same in every pod that writes a disk.

use std::time::Duration;

use datapath::Error;
use datapath::error::error_kinds;
use datapath::observe::Stage;
use program::metrics::{Counter, MetricsRegistry, SecondsCounter};

const RETRIES: &str =
    "Attempts that failed and are made again: requests, connections, uploads that wait to be continued.";
const ERRORS: &str = "Errors that ended a transfer.";
const SECONDS: &str = "Time that stages took: source waits for bytes, decode undoes layers and archives, format reads the \
                       image, target writes and syncs. Stages and writing threads overlap.";

/// The series `…_retries_total`, `…_errors_total` and `…_stage_seconds_total` of a program. All are there, and 0, from the start.
#[derive(Debug)]
pub struct TransferMetrics {
    retries: Counter,
    errors: Vec<((Stage, &'static str), Counter)>,
    seconds: [(Stage, SecondsCounter); Stage::ALL.len()],
}

impl TransferMetrics {
    /// Series in `registry` whose names begin with `program`: `cdi_importer`.
    pub fn new(registry: &MetricsRegistry, program: &str) -> Self {
        let kinds_of = |stage: Stage| error_kinds(stage).iter().map(move |&kind| (stage, kind));
        Self {
            // Nothing else is tried again.
            retries: registry.add_counter(
                format!("{program}_retries_total"),
                RETRIES,
                &[("stage", Stage::Source.name())],
            ),
            errors: Stage::ALL
                .into_iter()
                .flat_map(kinds_of)
                .map(|(stage, kind)| {
                    let labels = [("stage", stage.name()), ("kind", kind)];
                    let name = format!("{program}_errors_total");
                    ((stage, kind), registry.add_counter(name, ERRORS, &labels))
                })
                .collect(),
            seconds: Stage::ALL.map(|stage| {
                let name = format!("{program}_stage_seconds_total");
                (
                    stage,
                    registry.add_seconds_counter(name, SECONDS, &[("stage", stage.name())]),
                )
            }),
        }
    }

    /// An attempt failed, and is made again.
    pub fn record_retry(&self) {
        self.retries.add(1);
    }

    /// A transfer ended with `error`; a stop is none.
    pub fn record_failure(&self, error: &Error) {
        let trouble = error.stage_and_kind();
        if let Some((_, counter)) = self.errors.iter().find(|(known, _)| Some(*known) == trouble) {
            counter.add(1);
        }
    }

    /// `stage` took `time` more.
    pub fn record_time(&self, stage: Stage, time: Duration) {
        if let Some((_, seconds)) = self.seconds.iter().find(|(known, _)| *known == stage) {
            seconds.add_time(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use datapath::error::{
        DecodeError, FormatError, SourceError, SourceErrorKind, TargetError, TargetRefusedError,
    };
    use rustix::io::Errno;

    use super::*;

    fn source(kind: SourceErrorKind) -> Error {
        SourceError::new(kind, "x").into()
    }

    fn target(cause: impl Into<std::io::Error>) -> Error {
        TargetError::new("write", Path::new("/d"), cause.into()).into()
    }

    #[test]
    fn every_series_is_there_from_the_start_and_counts_its_own() {
        let registry = MetricsRegistry::default();
        let figures = TransferMetrics::new(&registry, "cdi_x");
        let before = registry.encode_text();
        let codec = "gzip";
        for (error, labels) in [
            (source(SourceErrorKind::Connect), ["source", "connect"]),
            (source(SourceErrorKind::Status(503)), ["source", "status"]),
            (source(SourceErrorKind::Changed), ["source", "changed"]),
            (source(SourceErrorKind::Length), ["source", "length"]),
            (source(SourceErrorKind::Digest), ["source", "digest"]),
            (source(SourceErrorKind::Stalled), ["source", "stalled"]),
            (source(SourceErrorKind::NotResumable), ["source", "not-resumable"]),
            (source(SourceErrorKind::Invalid), ["source", "invalid"]),
            (source(SourceErrorKind::Io), ["source", "io"]),
            (
                Error::Checksum {
                    expected: String::new(),
                    calculated: String::new(),
                },
                ["source", "checksum"],
            ),
            (
                DecodeError::Truncated { codec, offset: 1 }.into(),
                ["decode", "truncated"],
            ),
            (
                DecodeError::TrailingGarbage { codec, offset: 1 }.into(),
                ["decode", "corrupt"],
            ),
            (
                DecodeError::Barren {
                    codec,
                    consumed: 2,
                    decoded: 1,
                }
                .into(),
                ["decode", "barren"],
            ),
            (DecodeError::Empty.into(), ["decode", "empty"]),
            (
                DecodeError::TooDeep { limit: 4 }.into(),
                ["decode", "unsupported"],
            ),
            (
                FormatError::Endless { passed: 2, most: 1 }.into(),
                ["format", "endless"],
            ),
            (
                FormatError::Parking { parked: 2, budget: 1 }.into(),
                ["format", "memory"],
            ),
            (
                FormatError::TooLarge {
                    virtual_size: 2,
                    available: 1,
                }
                .into(),
                ["format", "too-large"],
            ),
            (
                FormatError::Base {
                    found: String::new(),
                    expected: String::new(),
                }
                .into(),
                ["format", "base"],
            ),
            (
                target(std::io::Error::other(TargetRefusedError::InUse)),
                ["target", "refused"],
            ),
            (target(Errno::NOSPC), ["target", "no-space"]),
            (target(Errno::IO), ["target", "io"]),
        ] {
            let [stage, kind] = labels;
            let line = |count| format!("cdi_x_errors_total{{stage=\"{stage}\",kind=\"{kind}\"}} {count}\n");
            assert!(before.contains(&line(0)), "{labels:?}");
            figures.record_failure(&error);
            assert!(registry.encode_text().contains(&line(1)), "{labels:?}");
        }
        let all = registry.encode_text();
        figures.record_failure(&Error::Stopped);
        figures.record_failure(&source(SourceErrorKind::Stopped));
        assert_eq!(registry.encode_text(), all, "a stop is no error");
    }

    #[test]
    fn retries_and_times_add_up() {
        let registry = MetricsRegistry::default();
        let figures = TransferMetrics::new(&registry, "cdi_x");
        figures.record_retry();
        figures.record_retry();
        for _ in 0..3 {
            figures.record_time(Stage::Target, Duration::from_millis(250));
        }
        let text = registry.encode_text();
        for line in [
            "cdi_x_retries_total{stage=\"source\"} 2\n",
            "cdi_x_stage_seconds_total{stage=\"target\"} 0.75\n",
            "cdi_x_stage_seconds_total{stage=\"source\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
