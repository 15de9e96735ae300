//! Creates blank disks, which need no source.

use std::fs::File;

use stream::error::{Error, TargetError};
use stream::marks::HELD_BYTES;
use tokio_util::sync::CancellationToken;

use super::handle::Disk;
use super::options::DiskOptions;
use super::place::{device_size, is_block_device};

/// Makes the target an empty disk of `available` bytes, or of the whole device if that is smaller.
/// A device is zeroed only if preallocation is requested. Otherwise it is only synced: CDI leaves
/// the content of a blank block volume unchanged.
pub fn create_blank(options: &DiskOptions, stop: &CancellationToken) -> Result<(), Error> {
    if is_block_device(&options.path) && !options.preallocate {
        return File::open(&options.path)
            .and_then(|device| device.sync_all())
            .map_err(|source| TargetError::new("fsync", &options.path, source).into());
    }
    let size = if is_block_device(&options.path) {
        device_size(&options.path)?.min(options.available)
    } else {
        options.available
    };
    let disk = Disk::open(options, Some(size))?;
    if !disk.is_zeroed() {
        // The first MiB was already zeroed when the device was opened.
        disk.zero_in_steps(HELD_BYTES..size, stop)?;
    }
    disk.commit(size, options.mode)?;
    Ok(())
}
