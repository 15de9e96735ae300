//! The events that `--progress json` prints on stdout, one JSON object on each line. They are
//! documented in `docs/use/importer.md`.

use std::collections::BTreeMap;

use program::progress::WaitEvent;
use serde::Serialize;

use super::watch::OpenConnections;

/// An event. Sizes are in bytes; an unknown value is `null`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum ImportEvent<'a> {
    /// The image was recognized.
    Image { layers: &'a [&'static str], format: String, route: String, virtual_size: Option<u64> },
    /// Progress, reported once a second.
    Progress {
        source_bytes: u64,
        source_total: Option<u64>,
        written_bytes: u64,
        percent: Option<f64>,
        bytes_per_second: u64,
        eta_seconds: Option<u64>,
        limited_seconds: BTreeMap<&'static str, f64>,
        waiting: Option<WaitEvent>,
        connections: Option<OpenConnections>,
    },
    /// The last line of an import that succeeded.
    Done {
        layers: &'a [&'static str],
        format: String,
        route: String,
        virtual_size: u64,
        disk_size: u64,
        source_bytes: u64,
        written_bytes: u64,
        preallocated: bool,
        peak_held_bytes: usize,
        checksum: Option<&'a str>,
        seconds: f64,
        stage_seconds: BTreeMap<&'static str, f64>,
        limited_seconds: BTreeMap<&'static str, f64>,
        retries: u64,
        warnings: Vec<String>,
    },
    /// The last line of an import that failed.
    Error {
        message: String,
        stage: Option<&'static str>,
        code: u8,
        retries: u64,
        warnings: Vec<String>,
    },
}
