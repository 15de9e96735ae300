//! Log lines about a transfer, with the phase names that CDI's importer and upload server use.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use datapath::archive;
use datapath::facts::ImageFacts;
use datapath::observe::TransferPhase;

use crate::messages::ProductKind;

/// Logs the bytes that a transfer read and the bytes that it wrote to the disk at `path`.
pub fn log_transfer(source_bytes: u64, written_bytes: u64, path: &Path) {
    let path = path.display();
    tracing::info!("Read {source_bytes} bytes, wrote {written_bytes} bytes to {path}");
}

/// Logs the number of entries and bytes that were unpacked from an archive into `dir`.
pub fn log_unpacked(report: &archive::UnpackReport, dir: &Path) {
    tracing::info!(
        "Read {} bytes, unpacked {} entries with {} bytes into {}",
        report.source_bytes,
        report.entries,
        report.data_bytes,
        dir.display()
    );
}

/// Logs that the phase `name` began.
pub fn log_phase(name: &str) {
    tracing::info!("New phase: {name}");
}

/// Tracks and logs the phases of a transfer.
#[derive(Debug)]
pub struct PhaseTracker {
    /// The most recent [`TransferPhase`], as a number.
    current: AtomicU8,
    made: ProductKind,
    /// True for a disk that CDI's importer converts from a file.
    is_conversion: bool,
}

impl PhaseTracker {
    /// Creates a tracker for a transfer that produces `made`. Its first phase is `Info`.
    pub fn new(made: ProductKind) -> Self {
        Self { current: AtomicU8::new(TransferPhase::Info as u8), made, is_conversion: false }
    }

    /// Starts like [`PhaseTracker::new`] for a disk in an image that the kubelet has mounted. CDI's
    /// importer calls the transfer of such a disk `Convert`.
    pub fn new_conversion() -> Self {
        Self { is_conversion: true, ..Self::new(ProductKind::Disk) }
    }

    /// Records and logs that `phase` began.
    pub fn begin_phase(&self, phase: TransferPhase) {
        self.current.store(phase as u8, Ordering::Relaxed);
        let name = match (phase, self.made) {
            // Logged already, before the image was opened.
            (TransferPhase::Info, _) if self.is_conversion => return,
            (TransferPhase::Info, _) => "Info",
            (TransferPhase::Transfer, _) if self.is_conversion => "Convert",
            (TransferPhase::Transfer, ProductKind::Disk | ProductKind::Changes) => {
                "TransferDataFile"
            }
            (TransferPhase::Transfer, ProductKind::Directory) => "TransferDataDir",
            (TransferPhase::Transfer, ProductKind::Delta) => "MergeDelta",
            (TransferPhase::Resize, _) => "Resize",
            (TransferPhase::Complete, _) => "Complete",
        };
        log_phase(name);
    }

    /// Returns the most recent phase.
    pub fn current_phase(&self) -> TransferPhase {
        let number = self.current.load(Ordering::Relaxed);
        [TransferPhase::Transfer, TransferPhase::Resize, TransferPhase::Complete]
            .into_iter()
            .find(|&phase| phase as u8 == number)
            .unwrap_or(TransferPhase::Info)
    }
}

/// Logs the format, compression, size and route of a recognized image; the route is how the image
/// is read.
pub fn log_image(facts: &ImageFacts) {
    let layers = if facts.layers.is_empty() { "none".to_owned() } else { facts.layers.join(",") };
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
        let phases = PhaseTracker::new(ProductKind::Disk);
        for phase in [
            TransferPhase::Info,
            TransferPhase::Transfer,
            TransferPhase::Resize,
            TransferPhase::Complete,
        ] {
            phases.begin_phase(phase);
            assert_eq!(phases.current_phase(), phase);
        }
    }
}
