//! What a transfer says in the log, under the names that CDI's importer and upload server use.

use datapath::facts::ImageFacts;
use datapath::observe::Phase;

use crate::wording::Made;

/// A new phase began.
pub fn log_phase(phase: Phase, made: Made) {
    let name = match (phase, made) {
        (Phase::Info, _) => "Info",
        (Phase::Transfer, Made::Disk) => "TransferDataFile",
        (Phase::Transfer, Made::Directory) => "TransferDataDir",
        (Phase::Transfer, Made::Delta) => "MergeDelta",
        (Phase::Resize, _) => "Resize",
        (Phase::Complete, _) => "Complete",
    };
    tracing::info!("New phase: {name}");
}

/// The image was recognised.
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
