//! The work of a populator: one transfer.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use datapath::error::TargetError;
use datapath::observe::Observer;
use datapath::options::{PayloadKind, ReadOptions, WriteOptions};
use datapath::{Error, disk, transfer};
use volume::{DiskRequest, TargetVolume, messages};

use super::config::PopulatorConfig;
use crate::watch::PodWatch;

/// Name of the only file that may be created.
const DISK_IMAGE: &str = "disk.img";

/// The reason why the volume was not filled.
#[derive(Debug)]
pub(super) enum PopulateError {
    /// The message of the failure.
    Failed(String),
    /// A signal stopped the work.
    Stopped,
}

impl PopulateError {
    fn from_error(error: &Error, watch: &PodWatch) -> Self {
        watch.record_failure(error);
        if messages::is_stop(error) {
            Self::Stopped
        } else {
            Self::Failed(format!("cannot fill the volume: {error}"))
        }
    }
}

/// Fills the volume and makes sure that it is on the medium.
pub(super) fn populate_volume(config: PopulatorConfig, watch: &Arc<PodWatch>) -> Result<(), PopulateError> {
    let because = |error: Error| PopulateError::from_error(&error, watch);
    let options = disk_options(&config.volume_path, config.size).map_err(|error| because(error.into()))?;
    let stop = config.network.stop.clone();
    let observer = Arc::clone(watch) as Arc<dyn Observer>;
    let mut network = config.network;
    network.observer = Arc::clone(&observer);
    let opened =
        sources::open_source(&config.place, &Arc::new(network)).map_err(|error| because(error.into()))?;
    let reading = ReadOptions { full_header: true, ..config.limits.read_options(stop, observer) };
    let writing = WriteOptions { workers: program::job::data_threads(), ..WriteOptions::default() };
    let report =
        transfer::transfer_image(&*opened.source, PayloadKind::default(), &options, &reading, &writing)
            .map_err(because)?;
    volume::watch::log_transfer(report.source_bytes, report.written_bytes, &options.path);
    watch.finish_progress();
    Ok(())
}

/// Returns the options for the disk at `path`. If it is a file, it has at most `size` bytes.
fn disk_options(path: &Path, size: Option<u64>) -> Result<disk::DiskOptions, TargetError> {
    // Without this check, a missing device would become a regular file in `/dev`, in the memory of
    // the node.
    if path.file_name() != Some(OsStr::new(DISK_IMAGE)) && !disk::is_block_device(path) {
        let problem = format!("not a block device; the only file name allowed is {DISK_IMAGE}");
        return Err(TargetError::new("open", path, io::Error::other(problem)));
    }
    // A file keeps the size of its image, as with upstream. Grown to the size of the claim, it
    // would be larger than its filesystem can hold: unlike the importer, a populator gets no
    // variable with the part of the volume that the filesystem keeps for itself.
    Ok(TargetVolume::for_path(path, size)?.target_options(&DiskRequest::default()))
}
