//! The work of a populator: one transfer.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use datapath::options::WriteOptions;
use datapath::{disk, transfer};
use reporting::figures::CountedTransfer;
use reporting::messages;
use stream::Error;
use stream::error::TargetError;
use stream::observe::Observer;
use stream::options::{PayloadKind, ReadOptions};
use volume::{DiskRequest, TargetVolume};

use super::config::PopulatorConfig;

/// Name of the only file that a populator may create.
const DISK_IMAGE: &str = "disk.img";

/// Fills the volume and ensures that the data is on the storage medium. The error is the message
/// of the failure, or `None` if a signal stopped the work.
pub(super) fn populate_volume(
    config: PopulatorConfig,
    watch: &Arc<CountedTransfer>,
) -> Result<(), Option<String>> {
    fill_volume(config, watch).map_err(|error| {
        watch.record_failure(&error);
        (!messages::is_stop(&error)).then(|| format!("cannot fill the volume: {error}"))
    })
}

fn fill_volume(config: PopulatorConfig, watch: &Arc<CountedTransfer>) -> Result<(), Error> {
    let options = disk_options(&config.volume_path, config.size)?;
    let stop = config.network.stop.clone();
    let observer = Arc::clone(watch) as Arc<dyn Observer>;
    let mut network = config.network;
    network.observer = Arc::clone(&observer);
    let opened = sources::open_source(&config.place, &Arc::new(network))?;
    let reading = ReadOptions { full_header: true, ..config.limits.read_options(stop, observer) };
    let writing = WriteOptions { workers: program::job::data_threads(), ..WriteOptions::default() };
    let report = transfer::transfer_image(
        &*opened.source,
        PayloadKind::default(),
        &options,
        &reading,
        &writing,
    )?;
    reporting::watch::log_transfer(report.source_bytes, report.written_bytes, &options.path);
    watch.finish();
    Ok(())
}

/// Returns the options for the disk at `path`. If it is a file, its size is at most `size` bytes.
fn disk_options(path: &Path, size: Option<u64>) -> Result<disk::DiskOptions, TargetError> {
    // Without this check, a missing device would become a regular file in `/dev`, which is stored
    // in the node's memory.
    if path.file_name() != Some(OsStr::new(DISK_IMAGE)) && !disk::is_block_device(path) {
        let problem = format!("not a block device; the only file name allowed is {DISK_IMAGE}");
        return Err(TargetError::new("open", path, io::Error::other(problem)));
    }
    // A file keeps the size of its image, as in upstream. If it grew to the size of the claim, it
    // would be too large for the filesystem: unlike the importer, a populator gets no variable
    // that states how much of the volume is reserved for the filesystem.
    Ok(TargetVolume::for_path(path, size)?.target_options(&DiskRequest::default()))
}
