//! Lines of the log about a transfer, under the names that CDI's importer and upload server use.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use datapath::archive;
use datapath::facts::ImageFacts;
use datapath::observe::Phase;

use crate::wording::Made;

/// Logs what a transfer to the disk at `path` took and gave.
pub fn log_transfer(source_bytes: u64, written_bytes: u64, path: &Path) {
    let path = path.display();
    tracing::info!("Read {source_bytes} bytes, wrote {written_bytes} bytes to {path}");
}

/// Logs what an archive put into `dir`.
pub fn log_unpacked(report: &archive::Report, dir: &Path) {
    tracing::info!(
        "Read {} bytes, unpacked {} entries with {} bytes into {}",
        report.source_bytes,
        report.entries,
        report.data_bytes,
        dir.display()
    );
}

/// The phases of a transfer as they begin.
#[derive(Debug)]
pub struct Phases {
    /// The [`Phase`] that began last, as a number.
    current: AtomicU8,
    made: Made,
}

impl Phases {
    /// The phases of the making of `made`.
    pub fn new(made: Made) -> Self {
        Self {
            current: AtomicU8::new(Phase::Info as u8),
            made,
        }
    }

    /// Notes and logs that `phase` began.
    pub fn begin(&self, phase: Phase) {
        self.current.store(phase as u8, Ordering::Relaxed);
        let name = match (phase, self.made) {
            (Phase::Info, _) => "Info",
            (Phase::Transfer, Made::Disk | Made::Changes) => "TransferDataFile",
            (Phase::Transfer, Made::Directory) => "TransferDataDir",
            (Phase::Transfer, Made::Delta) => "MergeDelta",
            (Phase::Resize, _) => "Resize",
            (Phase::Complete, _) => "Complete",
        };
        tracing::info!("New phase: {name}");
    }

    /// The phase that began last.
    pub fn current(&self) -> Phase {
        let number = self.current.load(Ordering::Relaxed);
        [Phase::Transfer, Phase::Resize, Phase::Complete]
            .into_iter()
            .find(|&phase| phase as u8 == number)
            .unwrap_or(Phase::Info)
    }
}

/// Logs that the image was recognized.
pub fn log_image(facts: &ImageFacts) {
    let layers = if facts.layers.is_empty() {
        "none".to_owned()
    } else {
        facts.layers.join(",")
    };
    tracing::info!(
        format = %facts.format,
        compression = layers,
        virtual_size = facts.virtual_size,
        route = %facts.route,
        "recognized the image"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_phase_is_remembered() {
        let phases = Phases::new(Made::Disk);
        for phase in [Phase::Info, Phase::Transfer, Phase::Resize, Phase::Complete] {
            phases.begin(phase);
            assert_eq!(phases.current(), phase);
        }
    }
}
