//! The metrics of a clone besides its progress, under the names that all our pods have.

use datapath::observe::Stage;
use program::metrics::{Counter, MetricsRegistry, SecondsCounter};

use crate::clone::CloneError;
use crate::source::Tally;

/// Its series. All are there, and 0, from the start.
pub(super) struct CloneMetrics {
    errors: [((Stage, &'static str), Counter); CloneError::TROUBLES.len()],
    seconds: [SecondsCounter; 2],
}

impl CloneMetrics {
    pub(super) fn new(registry: &MetricsRegistry) -> Self {
        Self {
            errors: CloneError::TROUBLES.map(|(stage, kind)| {
                let help = "Errors that ended a clone.";
                let labels = [("stage", stage.name()), ("kind", kind)];
                let counter = registry.add_counter("cdi_cloner_errors_total", help, &labels);
                ((stage, kind), counter)
            }),
            seconds: [Stage::Source, Stage::Target].map(|stage| {
                let help = "Time that stages took: source reads the volume, target waits for the network. They overlap.";
                let labels = [("stage", stage.name())];
                registry.add_seconds_counter("cdi_cloner_stage_seconds_total", help, &labels)
            }),
        }
    }

    /// A tally that counts the time of its stages here.
    pub(super) fn new_tally(&self) -> Tally {
        let [reading, sending] = self.seconds.clone();
        Tally::with_timers(
            move |time| reading.add_time(time),
            move |time| sending.add_time(time),
        )
    }

    /// The clone ends with `error`.
    pub(super) fn record_failure(&self, error: &CloneError) {
        let trouble = error.stage_and_kind();
        if let Some((_, counter)) = self.errors.iter().find(|(known, _)| Some(*known) == trouble) {
            counter.add(1);
        }
    }
}
